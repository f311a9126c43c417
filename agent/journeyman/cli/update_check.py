"""`journeyman update check`: what would happen now, and why not."""

from __future__ import annotations

import click

from journeyman.cli.output import print_json
from journeyman.cli.setting_flags import local_flags
from journeyman.cli.update_common import JSON, explained, facts_of, updater_of
from journeyman.errors import JourneymanError
from journeyman.settings import Loaded
from journeyman_updater.run import Forecast, Prospect


@click.command("check", epilog="Example: journeyman update check --json")
@JSON
@local_flags
def command(*, loaded: Loaded, as_json: bool) -> None:
    """Ask the control plane now and say what the updater would do; nothing is changed.

    Exits with 0 if there is nothing to do, if it would update, or if the update waits for its time; with 1 if
    it would be refused; with 69 if the control plane cannot be asked.
    """
    with explained():
        found = updater_of(loaded).check()
    if as_json:
        print_json(
            {
                "prospect": found.prospect,
                "release": facts_of(found.slot),
                "reason": found.reason,
                "message": found.message,
                "advice": found.advice,
                "bytesToFetch": found.bytes_to_fetch,
                "turnSeconds": round(found.turn_seconds, 1),
            }
        )
    elif found.prospect is not Prospect.REFUSED:
        print(_sentence(found))
    if found.prospect is Prospect.REFUSED:
        raise JourneymanError(f"{found.reason}: {found.message}", found.advice)


def _sentence(found: Forecast) -> str:
    if found.prospect is Prospect.UPDATES and found.slot is not None:
        return f"would update to {found.slot.version.spelled} ({found.slot.sha256[:12]}), {_details(found)}"
    name = f"{found.slot.version.spelled}: " if found.slot else ""
    advice = f"\n  {found.advice}" if found.advice else ""
    return f"{name}{found.message}{advice}"


def _details(found: Forecast) -> str:
    size = found.bytes_to_fetch
    transfer = "of a size that nobody has signed" if size is None else f"{size} bytes to fetch"
    return f"{transfer}, in {found.turn_seconds:.0f} s" if found.turn_seconds else f"{transfer}, at once"
