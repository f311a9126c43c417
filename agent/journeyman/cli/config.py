"""`journeyman config`: what the agent would run with, and why."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import setting_flags
from journeyman.settings import Loaded, config_file_of


@click.group(epilog="Example: journeyman config show --json")
def command() -> None:
    """Show the settings and where each came from."""


@command.command(epilog="Example: journeyman config show --state-root ./node")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@setting_flags
def show(*, loaded: Loaded, as_json: bool) -> None:
    """Show every setting, its value and its origin: default, file:line, variable or flag.

    Exits with 78 if a setting is wrong.  Secrets live in files, of which only the paths are shown.
    """
    values = loaded.settings.model_dump(mode="json")
    if as_json:
        print_json(
            {
                "configFile": str(loaded.config_file),
                "settings": {
                    name: {
                        "value": value,
                        "origin": loaded.origins[name].kind,
                        "place": loaded.origins[name].place,
                    }
                    for name, value in values.items()
                },
            }
        )
        return
    print_table(("setting", "value", "from"), [row for name in values for row in _rows(loaded, name, values)])


def _rows(loaded: Loaded, name: str, values: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    """One row, or one for each table of models with what it sets."""
    if name != "inference" or not values[name]:
        return [(name, values[name], loaded.origins[name])]
    tables = (table.model_dump(mode="json", exclude_unset=True) for table in loaded.settings.inference)
    return [(f"{name}[{index}]", table, loaded.origins[name]) for index, table in enumerate(tables)]


@command.command(epilog="Example: journeyman config path --state-root ./node")
@click.option("--state-root", metavar="PATH", help="Folder of all durable state of the node.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def path(*, state_root: str | None, as_json: bool) -> None:
    """Print the file that settings are read from.

    It need not exist, nor be right: this is how to find the one to mend.
    """
    file = config_file_of({"state_root": state_root}, os.environ)
    if as_json:
        print_json({"configFile": str(file), "exists": file.is_file()})
    else:
        print(file)
