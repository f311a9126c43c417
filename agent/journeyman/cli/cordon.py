"""`journeyman cordon`: no new work on this host."""

from __future__ import annotations

import click

from journeyman.cli.durations import DURATION
from journeyman.cli.setting_flags import local_flags
from journeyman.cli.status import show
from journeyman.control import call
from journeyman.settings import Loaded


@click.command(epilog="Example: journeyman cordon --for 2h --reason 'video call'")
@click.option("--for", "seconds", type=DURATION, help="Lift it by itself after this time: 90s, 30m, 2h, 1d.")
@click.option("--reason", default="", help="What others shall read.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@local_flags
def command(*, loaded: Loaded, seconds: float | None, reason: str, as_json: bool) -> None:
    """Take no new work on this host; what runs goes on, and heartbeats go on.

    It holds over restarts of the agent, until `journeyman uncordon` or the time given.
    """
    show(call(loaded.settings.root, "cordon", seconds=seconds, reason=reason), as_json=as_json)
