"""The verbs of launchctl(1) that we use, and the search for a label in all domains.

`load`, `unload` and `disable` are left out: on a loaded label the first does nothing and says 0, and the
last leaves an override that outlives the installation.  Exit codes prove nothing: callers look at `print`
afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from journeyman_updater.core.launchd_text import (
    NO_SUCH_DOMAIN,
    NO_SUCH_SERVICE,
    PrintedJob,
    parse_disabled,
    parse_job,
)
from journeyman_updater.ports import CommandResult, CommandRunner

_ABSENT = NO_SUCH_SERVICE | NO_SUCH_DOMAIN


@dataclass(frozen=True)
class Found:
    """A registered job.

    Attributes:
        domain: that has it.
        job: what `print` says.
    """

    domain: str
    job: PrintedJob


@dataclass(frozen=True)
class Look:
    """One search for a label.

    Attributes:
        found: in the order of the domains, one that runs first.
        doubtful: what launchctl said instead of an answer; one line each.
    """

    found: tuple[Found, ...]
    doubtful: tuple[str, ...]

    @property
    def first(self) -> Found | None:
        return self.found[0] if self.found else None

    @property
    def is_absent(self) -> bool:
        """Whether every domain has said that it has no such job."""
        return not self.found and not self.doubtful


class Launchctl:
    """launchctl, for one label.

    Args:
        runner: runs it.
        label: of the job.
        domains: where to look: `system`, `gui/UID`, `user/UID`; the first is where the job belongs.
        program: its path; not looked for on PATH, which has folders that root does not own.
        timeout_seconds: of each command.
    """

    def __init__(
        self,
        runner: CommandRunner,
        label: str,
        domains: tuple[str, ...],
        *,
        program: str = "/bin/launchctl",
        timeout_seconds: float = 15.0,
    ) -> None:
        self.label = label
        self.domains = domains
        self._runner = runner
        self._program = program
        self._timeout_seconds = timeout_seconds

    def running(self) -> PrintedJob | None:
        """The first job with a process, domain by domain: this is asked often, and each look has a price."""
        jobs = (self.look((domain,)).first for domain in self.domains)
        return next((found.job for found in jobs if found is not None and found.job.pid is not None), None)

    def look(self, domains: tuple[str, ...] | None = None) -> Look:
        """Searches the label; in all domains unless some are named."""
        found, doubtful = [], []
        for domain in self.domains if domains is None else domains:
            result = self._run("print", f"{domain}/{self.label}")
            if result.code == 0:
                found.append(Found(domain, parse_job(result.stdout)))
            elif result.code not in _ABSENT:
                doubtful.append(first_line(result))
        found.sort(key=lambda item: item.job.pid is None)
        return Look(tuple(found), tuple(doubtful))

    def terminate(self, domain: str) -> CommandResult:
        """Sends SIGTERM to the job's process; 3 means that there is none."""
        return self._run("kill", "SIGTERM", f"{domain}/{self.label}")

    def kickstart(self, domain: str, *, kill: bool = False) -> CommandResult:
        """Starts the job if it does not run.  With `kill` one that runs is killed (SIGKILL) and started anew.

        It starts what is in memory: a changed property list is not read.
        """
        flags = ("-k",) if kill else ()
        return self._run("kickstart", *flags, f"{domain}/{self.label}")

    def bootout(self, domain: str) -> CommandResult:
        """Asks for the job to be removed; it lingers until its process has ended."""
        return self._run("bootout", f"{domain}/{self.label}")

    def bootstrap(self, domain: str, plist: str) -> CommandResult:
        """Registers the job from a property list."""
        return self._run("bootstrap", domain, plist)

    def enable(self, domain: str) -> CommandResult:
        """Removes an override that disables the label."""
        return self._run("enable", f"{domain}/{self.label}")

    def is_disabled(self, domain: str) -> bool | None:
        """Whether there is an override that disables the label; None if that cannot be told."""
        result = self._run("print-disabled", domain)
        return parse_disabled(result.stdout, self.label) if result.code == 0 else None

    def _run(self, *words: str) -> CommandResult:
        return self._runner.run(self._program, *words, timeout_seconds=self._timeout_seconds)


def first_line(result: CommandResult) -> str:
    """What launchctl said, in one line."""
    text = (result.stderr or result.stdout).strip().splitlines()
    return text[0] if text else f"launchctl ended with {result.code} and said nothing"
