"""What a runtime says of itself, and how its `--help` is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from journeyman.core.server_config import ServerConfig

LISTEN_HOST = "127.0.0.1"
# Stands for the key in a file that whoever starts the program puts it into.
KEY_PLACE = "@journeyman-key@"
# An option at the beginning of a line, and those that follow it there, are what a program takes.
OPTION_LINE = re.compile(r"^ {0,8}(-.*)$")
OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")
REMOVED = "has been removed"
# Builds whose help says this report their buffers at that level alone.  Older ones always do, and would log
# prompts at it.
TRACE_HELP = re.compile(r"^ *- 4: trace", re.MULTILINE)
TRACE = "--log-verbosity=trace"


@dataclass(frozen=True)
class Launch:
    """How a program is started.

    Attributes:
        argv: after the program itself.  No secret is in it, as everybody on the host can read it.
        env: added to the environment.
        files: written 0600 into the worker's folder before.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


class Runtime(Protocol):
    """One kind of program."""

    @property
    def program(self) -> str:
        """Its name, as it is found on PATH."""
        ...

    @property
    def module(self) -> str:
        """What a Python runs, where the program is a Python; or else empty."""
        ...

    @property
    def reads_help(self) -> bool:
        """Whether its options differ so much from build to build that they are looked up first."""
        ...

    def launch(self, config: ServerConfig, options: frozenset[str], key_file: str) -> Launch:
        """How it serves that configuration, on a free port where the configuration names none.

        Args:
            config: what is to be served.
            options: what this build takes, by its own `--help`; empty where that is not read.
            key_file: the file with the key that its clients show, in the worker's folder.

        Raises:
            ConfigError: this build lacks an option without which it would not do what is asked.
        """
        ...


def options_in(help_text: str) -> frozenset[str]:
    """The options that a program's `--help` offers; those that it only remembers are not among them.

    `TRACE` is among them where the log has that level.
    """
    found: set[str] = {TRACE} if TRACE_HELP.search(help_text) else set()
    for line in help_text.splitlines():
        match = OPTION_LINE.match(line)
        if match and REMOVED not in line:
            # What follows two spaces is the description, unless it is another spelling.
            found |= set(OPTION.findall(re.split(r" {2,}(?![ -])", match[1], maxsplit=1)[0]))
    return frozenset(found)
