"""`journeyman gate`: a person's word on one gate, for a time."""

from __future__ import annotations

from typing import Any

import click

from journeyman.cli.durations import DURATION
from journeyman.cli.output import print_json
from journeyman.cli.setting_flags import local_flags
from journeyman.control import call
from journeyman.settings import Loaded


@click.group(epilog="Example: journeyman gate open thermal --for 2h")
def command() -> None:
    """Force a gate open or closed for a time, or take that back."""


def _forcing(word: str, description: str) -> None:
    @command.command(word, help=description, epilog=f"Example: journeyman gate {word} thermal --for 2h")
    @click.argument("name")
    @click.option(
        "--for", "seconds", type=DURATION, required=True, help="How long: 90s, 30m, 2h, 1d; a week at most."
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @local_flags
    def force(*, loaded: Loaded, name: str, seconds: float, as_json: bool) -> None:
        _ask(loaded, as_json=as_json, gate=name, word=word, forSeconds=seconds)


_forcing("open", "Force a gate open, whatever its sensors say.")
_forcing("close", "Force a gate closed: no new work.")


@command.command("auto", epilog="Example: journeyman gate auto thermal")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@local_flags
def auto(*, loaded: Loaded, name: str, as_json: bool) -> None:
    """Leave a gate to its sensors again."""
    _ask(loaded, as_json=as_json, gate=name, word="auto")


def _ask(loaded: Loaded, *, as_json: bool, **args: Any) -> None:
    found = call(loaded.settings.root, "gate", **args)
    if as_json:
        print_json(found)
        return
    gate = next(one for one in found["gates"] if one["name"] == args["gate"])
    end = f" until {gate['forcedUntil']}" if gate["forcedUntil"] else ""
    print(f"{gate['name']}: {gate['level']}{end}")
