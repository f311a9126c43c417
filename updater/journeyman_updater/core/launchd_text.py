"""What `launchctl print` and `print-disabled` say, read leniently.

The text is no interface and differs between releases of macOS, so everything that is not found is unknown,
None, and nothing is concluded from its absence.  Only fields of the job itself count: the tables nested in it
(endpoints, sockets) have a `state` and an `active count` of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# `print` of a label that its domain does not have; 3 is said for one that is just leaving.
NO_SUCH_SERVICE = frozenset({3, 113})
# The domain itself is not there, as `gui/UID` without a login to the desktop.
NO_SUCH_DOMAIN = frozenset({112, 125})

_FIELD = re.compile(r"(?P<name>[^=]*[^=\s])\s*(?:=>|=)\s*(?P<value>.*)")
_NUMBER = re.compile(r"\d+")
_DISABLED = re.compile(r'"?(?P<label>[^"\s]+)"?\s*=>\s*(?P<value>\w+)')


@dataclass(frozen=True)
class PrintedJob:
    """A job in memory of launchd, as far as the text says.

    Attributes:
        state: `running`, `not running`, `SIGTERMed`, `spawn scheduled`, ...
        pid: of its process.
        runs: how often it was spawned since it was registered: the counter of restarts.
        program: what is run.
        path: the file that it was registered from; launchd does not look at that again.
        exit_timeout_seconds: between SIGTERM and SIGKILL when it is removed.
        pended: why launchd keeps a spawn back, such as `speculative` or `inefficient`.
        environment: the variables of its own property list; None if the text has no such table.
    """

    state: str | None = None
    pid: int | None = None
    runs: int | None = None
    program: str | None = None
    path: str | None = None
    exit_timeout_seconds: int | None = None
    pended: str | None = None
    environment: dict[str, str] | None = field(default=None, hash=False)


def parse_job(text: str) -> PrintedJob:
    """Reads `launchctl print DOMAIN/LABEL`; any text gives a job, an unreadable one an unknown one."""
    fields, environment = _own_fields(text)
    pended = fields.get("pended nondemand spawn")
    return PrintedJob(
        state=fields.get("state"),
        pid=_number(fields.get("pid")),
        runs=_number(fields.get("runs")),
        program=fields.get("program"),
        path=fields.get("path"),
        exit_timeout_seconds=_number(fields.get("exit timeout")),
        pended=None if pended in {None, "false", "none"} else pended,
        environment=environment,
    )


def parse_disabled(text: str, label: str) -> bool | None:
    """Reads `launchctl print-disabled DOMAIN`: `=> disabled` since macOS 13, `=> true` before.

    Returns:
        Whether there is an override that disables the label; None if the text has no word about it.
    """
    for found in _DISABLED.finditer(text):
        if found["label"] == label:
            return {"disabled": True, "true": True, "enabled": False, "false": False}.get(found["value"])
    return None


def _own_fields(text: str) -> tuple[dict[str, str], dict[str, str] | None]:
    fields: dict[str, str] = {}
    environment: dict[str, str] | None = None
    tables: list[str] = []
    for line in (line.strip() for line in text.splitlines()):
        if line == "}":
            tables = tables[:-1]
        elif line.endswith("{"):
            tables.append(line.removesuffix("{").rstrip(" =>"))
            if tables[1:] == ["environment"]:
                environment = {}
        elif found := _FIELD.fullmatch(line):
            # The outermost table is the job; what is printed without one is taken for its fields, too.
            if len(tables) <= 1:
                fields.setdefault(found["name"], found["value"])
            elif tables[1:] == ["environment"] and environment is not None:
                environment[found["name"]] = found["value"]
    return fields, environment


def _number(text: str | None) -> int | None:
    found = _NUMBER.match(text or "")
    return int(found[0]) if found else None
