"""`journeyman update unit`: what starts the agent, as this release would install it.

Nothing else of the updater is loaded: it asks each new release this, with a deadline, on small machines too.
"""

from __future__ import annotations

import sys

import click

from journeyman.cli.setting_flags import local_flags
from journeyman.errors import ConfigError
from journeyman.settings import Loaded
from journeyman_updater.installed import agent_unit


@click.command("unit", epilog="Example: journeyman update unit --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@local_flags
def command(*, loaded: Loaded, as_json: bool) -> None:
    """Print what the service manager of this host would start the agent by under this release.

    The updater asks a new release this before it stops anything.  Nothing is printed without `journeyman
    install`, and where there is no service manager.  Changes nothing.
    """
    try:
        unit = agent_unit(loaded.settings.root)
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
    if as_json:
        sys.stdout.write(unit.to_json().decode() + "\n")
        return
    for name, content in unit.files.items():
        print(f"# {name}\n{content.decode(errors='replace')}")
