"""`journeyman drain`: cordon, and wait until nothing runs."""

from __future__ import annotations

import sys
import time

import click

from journeyman.cli.durations import DURATION
from journeyman.cli.setting_flags import local_flags
from journeyman.cli.status import show
from journeyman.control import call
from journeyman.errors import HostError
from journeyman.settings import Loaded

LOOK_AGAIN_SECONDS = 0.5


@click.command(epilog="Example: journeyman drain --timeout 30m --reason 'moving the desk'")
@click.option(
    "--timeout", "seconds", type=DURATION, default="1h", show_default=True, help="How long to wait."
)
@click.option("--reason", default="", help="What others shall read.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@local_flags
def command(*, loaded: Loaded, seconds: float, reason: str, as_json: bool) -> None:
    """Take no new work, and wait until what runs has ended and is delivered.

    Exits with 71 if that takes longer than --timeout; the node stays cordoned either way.
    """
    status = call(loaded.settings.root, "cordon", reason=reason or "draining")
    deadline = time.monotonic() + seconds
    while status["tasks"] or status["undelivered"]:
        if time.monotonic() > deadline:
            names = ", ".join(task["name"] for task in status["tasks"]) or "endings on their way"
            raise HostError(f"not drained in time: {names}", "wait longer with --timeout")
        print(f"waiting for {len(status['tasks'])} tasks", file=sys.stderr)
        time.sleep(LOOK_AGAIN_SECONDS)
        status = call(loaded.settings.root, "status")
    show(status, as_json=as_json)
