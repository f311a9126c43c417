"""`journeyman version`."""

from __future__ import annotations

import json

import click

from journeyman import __version__


@click.command(epilog="Example: journeyman version --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(*, as_json: bool) -> None:
    """Print the version."""
    facts = {"product": "journeyman", "version": __version__}
    print(json.dumps(facts) if as_json else f"journeyman {__version__}")
