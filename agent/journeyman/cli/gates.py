"""`journeyman gates`: what the gates say, and what they would have said."""

from __future__ import annotations

import json
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import local_flags
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.marks import Marks, marks_from
from journeyman.core.gates.replay import Replayed, replay
from journeyman.errors import ConfigError, HostError
from journeyman.settings import Loaded

WATCH_SECONDS = 2.0
MINUTE, HOUR = 60, 3600


@click.group(invoke_without_command=True, epilog="Example: journeyman gates --watch")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--watch", is_flag=True, help="Print again every two seconds, until Ctrl-C.")
@local_flags
@click.pass_context
def command(ctx: click.Context, *, loaded: Loaded, as_json: bool, watch: bool) -> None:
    """Show readings, marks and verdict of each gate, as the agent last wrote them."""
    if ctx.invoked_subcommand is not None:
        return
    path = loaded.settings.root.run / "gates.json"
    while True:
        found = read_gates_file(path)
        if watch and not as_json:
            click.clear()
        if as_json:
            print_json(found)
        else:
            _print_tables(found)
        if not watch:
            return
        time.sleep(WATCH_SECONDS)


@command.command("replay", epilog="Example: journeyman gates replay trace.jsonl --host-class linux-laptop")
@click.argument("trace", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--host-class", type=click.Choice(list(HostClass)), help="Class of the host; else the trace's.")
@click.option(
    "--marks", "marks_file", type=click.Path(path_type=Path, exists=True), help="TOML file with marks."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def replay_command(*, trace: Path, host_class: str | None, marks_file: Path | None, as_json: bool) -> None:
    """Run a recorded or hand-made trace through the gates and print each transition."""
    marks = read_marks(marks_file)
    host = None if host_class is None else HostClass(host_class)
    with trace.open(encoding="utf-8", errors="replace") as lines:
        for found in replay(lines, marks, host):
            print(json.dumps(_as_json(found)) if as_json else _as_line(found))


def read_gates_file(path: Path) -> dict[str, Any]:
    """The agent's report with its age in seconds.

    Raises:
        HostError: no agent has written one, or it is none.
    """
    try:
        found = json.loads(path.read_bytes())
        written = datetime.fromisoformat(found["writtenAt"])
    except FileNotFoundError as error:
        raise HostError(
            f"there is no {path}", "Start the agent with `journeyman run`, or name its --state-root."
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HostError(f"{path} cannot be read: {error}", "See the agent's log.") from error
    age = (datetime.now(UTC) - written).total_seconds()
    return {**found, "ageSeconds": round(max(0.0, age), 1)}


def read_marks(path: Path | None) -> Marks:
    """The marks of a TOML file, which may hold them below `[gates]` as the settings do; else the defaults.

    Raises:
        ConfigError: it is no such file.
    """
    if path is None:
        return Marks()
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return marks_from(values.get("gates", values), str(path))


def _print_tables(found: dict[str, Any]) -> None:
    print(_title(found))
    gates = [
        (
            gate["name"],
            gate["phase"],
            gate["level"],
            _duration(gate["sinceSeconds"]),
            [reason["code"] for reason in gate["reasons"]],
            _opens(gate),
        )
        for gate in found["gates"]
    ]
    print_table(("gate", "phase", "asks for", "since", "why", "may open"), gates)
    print()
    marks = {rule["signal"]: rule for gate in found["gates"] for rule in gate["marks"]}
    readings = [
        (
            one["name"],
            None if one["value"] is None else f"{one['value']:g}",
            one["unit"],
            one["source"],
            _duration(one["ageSeconds"]),
            f"{one['quality']} {one['detail']}",
            _marks(marks.get(one["name"])),
        )
        for one in found["readings"]
    ]
    print_table(("reading", "value", "unit", "source", "age", "quality", "marks"), readings)


def _title(found: dict[str, Any]) -> str:
    state = "takes work" if found["admits"] else f"takes no work: {found['why']}"
    return f"{found['hostClass']}, {_duration(found['ageSeconds'])} ago: {state}"


def _opens(gate: dict[str, Any]) -> str:
    if gate["forcedUntil"]:
        return f"forced until {gate['forcedUntil']}"
    if gate["retryAfterSeconds"] is None:
        return ""
    return f"in {_duration(gate['retryAfterSeconds'])} at the soonest {gate['until']}".strip()


def _marks(rule: dict[str, Any] | None) -> str:
    if rule is None:
        return ""
    sign = ">" if rule["worse"] == "high" else "<"
    rungs = [f"{one['level']} {sign} {one['mark']:g} for {one['forSeconds']:g} s" for one in rule["close"]]
    return f"{', '.join(rungs)}; opens at {rule['open']:g}"


def _duration(seconds: float) -> str:
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def _as_json(found: Replayed) -> dict[str, Any]:
    one = found.transition
    return {
        "t": found.at_seconds,
        "gate": one.gate,
        "before": one.before.name.lower(),
        "after": one.after.name.lower(),
        "reason": one.reason,
        "reading": one.message,
    }


def _as_line(found: Replayed) -> str:
    one = found.transition
    levels = f"{one.before.name.lower()} -> {one.after.name.lower()}"
    return f"{found.at_seconds:10.1f} s  {one.gate:10} {levels:15} {one.reason}  {one.message}".rstrip()
