"""Groups whose commands are imported when they are called or asked for help, so that others do not pay."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group of commands that lie in modules of `journeyman.cli`.

    Args:
        given: all that a group of click takes.
        places: the `module.attribute` of each command by its name, in the order in which help lists them.
    """

    def __init__(self, *, places: Mapping[str, str], **given: Any) -> None:
        super().__init__(**given)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name].partition(".")
        command: click.Command = getattr(importlib.import_module(f"journeyman.cli.{module}"), attribute)
        return command
