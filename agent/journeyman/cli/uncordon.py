"""`journeyman uncordon`: work again."""

from __future__ import annotations

import click

from journeyman.cli.setting_flags import local_flags
from journeyman.cli.status import show
from journeyman.control import call
from journeyman.settings import Loaded


@click.command(epilog="Example: journeyman uncordon")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@local_flags
def command(*, loaded: Loaded, as_json: bool) -> None:
    """Lift the cordon of this host.  Other holds, such as a closed gate, stay."""
    show(call(loaded.settings.root, "uncordon"), as_json=as_json)
