"""Puts an argument vector together from what a build offers."""

from __future__ import annotations

from journeyman.errors import ConfigError


class Options:
    """The arguments of one program, in order.

    Args:
        known: what this build takes.
        program: what to call it in an error.
    """

    def __init__(self, known: frozenset[str], program: str) -> None:
        self._known = known
        self._program = program
        self._argv: list[str] = []

    def need(self, names: str, *values: object) -> None:
        """An option without which it would do something else.

        Args:
            names: the spellings of different builds, the newest first, with spaces between.
            values: what follows it.

        Raises:
            ConfigError: this build has none of them.
        """
        if not self.want(names, *values):
            newest = names.partition(" ")[0]
            raise ConfigError(f"{self._program} has no option {newest}", "Use another build of it.")

    def want(self, names: str, *values: object) -> bool:
        """An option that a build may lack.  Returns whether this one has it."""
        name = next((name for name in names.split() if name in self._known), None)
        if name is None:
            return False
        self._argv += [name, *map(str, values)]
        return True

    def argv(self, *extra: str) -> tuple[str, ...]:
        """All of them; what a person has added comes last, where it wins."""
        return (*self._argv, *extra)
