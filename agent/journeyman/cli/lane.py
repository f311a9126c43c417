"""`journeyman lane`: any command, admitted by the gates of this host and explained by a receipt."""

from __future__ import annotations

import sys

import click

from journeyman.cli.durations import BYTES, DURATION
from journeyman.cli.setting_flags import local_flags
from journeyman.lane_client import LaneCommand, run_lane
from journeyman.settings import Loaded


@click.group(epilog="Example: journeyman lane run --ram 2G -- make test")
def command() -> None:
    """Run commands when this host can afford them."""


@command.command(
    "run",
    context_settings={"ignore_unknown_options": True},
    epilog="Example: journeyman lane run --ram 2G --cpu 2 --timeout 30m -- make test",
)
@click.option("--ram", "ram_bytes", type=BYTES, default=0, help="Memory to reserve, such as 2G or 512Mi.")
@click.option("--disk", "disk_bytes", type=BYTES, default=0, help="Room below the state root to reserve.")
@click.option(
    "--vram", "vram_bytes", type=BYTES, default=0, help="Memory of the GPU to reserve; its gate counts too."
)
@click.option("--cpu", "cpus", type=click.FloatRange(0), default=1, help="Cores to reserve.")
@click.option("--timeout", "timeout_seconds", type=DURATION, help="End the job after so long, such as 30m.")
@click.option("--name", default="", help="Part of the job's id.")
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as one line of JSON on stderr.")
@click.argument("argv", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@local_flags
def run(
    *,
    loaded: Loaded,
    ram_bytes: int,
    disk_bytes: int,
    vram_bytes: int,
    cpus: float,
    timeout_seconds: float | None,
    name: str,
    as_json: bool,
    argv: tuple[str, ...],
) -> None:
    """Run a command as soon as this host has room for it, and wait for its end.

    Says on stderr why it waits, in which place of the queue, and until when.  The command runs here, with
    this environment; its output comes as it is.  Its standard input is empty.  Ctrl-C ends it with
    SIGTERM, a second one with SIGKILL.  The exit code is the command's, or 128 and a signal's number, or 70
    if nobody knows how it ended.
    """
    lane = LaneCommand(
        argv, name=name, ram_bytes=ram_bytes, disk_bytes=disk_bytes, vram_bytes=vram_bytes, cpus=cpus,
        timeout_seconds=timeout_seconds,
    )  # fmt: skip
    sys.exit(run_lane(str(loaded.settings.state_root), lane, as_json=as_json))
