"""`journeyman update window`: when updates of the control plane may start here."""

from __future__ import annotations

import click

from journeyman.cli.output import print_json
from journeyman.cli.setting_flags import local_flags
from journeyman.cli.update_common import JSON, explained, updater_of
from journeyman.errors import UsageError
from journeyman.settings import Loaded
from journeyman_updater.run import Updater, Window, parse_window


@click.command(
    "window", epilog="Example: journeyman update window 'Mon-Fri 22:00-06:00; Sat,Sun 00:00-24:00'"
)
@click.argument("spec", required=False)
@click.option("--clear", is_flag=True, help="Let updates start at any time again.")
@JSON
@local_flags
def command(*, loaded: Loaded, spec: str | None, clear: bool, as_json: bool) -> None:
    """Show, set or clear the maintenance window, in local time.

    Outside of it no update of the control plane begins and none is activated.  A trial that is open is always
    finished, a rollback never waits, and what is asked for at this host starts at once.
    """
    if clear and spec is not None:
        raise UsageError("give a window or --clear, not both")
    window = None if spec is None else _parsed(spec)
    with explained():
        updater = updater_of(loaded)
        if clear or window is not None:
            updater.set_window(window)
        _show(updater, as_json=as_json)


def _parsed(spec: str) -> Window:
    try:
        return parse_window(spec)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _show(updater: Updater, *, as_json: bool) -> None:
    spelled = updater.document().spec.window
    opening = None if spelled is None else updater.opening(parse_window(spelled))
    opens = None if opening is None else opening.isoformat(timespec="minutes")
    if as_json:
        print_json({"window": spelled, "opens": opens})
    elif spelled is None:
        print("no window: an update may start at any time")
    else:
        print(f"{spelled}\nopens {opens or 'not within two weeks'}")
