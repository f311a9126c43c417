"""`journeyman doctor`: what is wrong here, and what heals it."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import client_flags
from journeyman.doctor import examine
from journeyman.settings import Loaded


@click.command(epilog="Example: journeyman doctor --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_flags
def command(*, loaded: Loaded, as_json: bool) -> None:
    """Look at agent, service, host and control plane, and say what to do about what is wrong.

    Changes nothing.  Exits with 0 if all is well, and with 1 if something was found.
    """
    checks = examine(loaded.settings)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        rows = [
            (check.name, "ok" if check.is_well else "WRONG", check.finding, check.advice) for check in checks
        ]
        print_table(("check", "state", "finding", "advice"), rows)
    sys.exit(0 if all(check.is_well for check in checks) else 1)
