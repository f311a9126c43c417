"""Gives a command flags for settings, and the settings that result."""

from __future__ import annotations

import functools
import os
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from journeyman.settings import Settings, load_settings, own_state_root

TABLES = {"gates", "inference"}
SEVERAL = {
    *("roles", "models", "node_labels", "task_namespaces", "model_plain_http_hosts", "proxy_reach_sources"),
}

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def flags_for(names: Sequence[str], *, at_home: bool = False) -> Decorator:
    """Decorates a command: adds `--config` and a flag for each named setting, and passes `loaded`.

    All settings are read whatever flags there are.  Values are only checked with those of the other
    sources, so that a wrong one is explained in the same way wherever it comes from.

    Args:
        names: of the settings.
        at_home: whether the state root is the user's own if nobody says otherwise, whatever is installed.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_settings(*, config_file: Path | None, **params: Any) -> Any:
            flags = {name: params.pop(name) for name in names}
            own = own_state_root(os.environ, platform=sys.platform, home=Path.home()) if at_home else None
            loaded = load_settings(flags, os.environ, config_file=config_file, default_root=own)
            return function(loaded=loaded, **params)

        command: Callable[..., Any] = with_settings
        for name in reversed(names):
            command = _flag(name)(command)
        return click.option(
            "--config",
            "config_file",
            type=click.Path(path_type=Path),
            help="TOML file to read instead of config.toml in the state root.",
        )(command)

    return decorate


# Every setting but tables of settings, for commands that run the agent or show what it would run with.
setting_flags = flags_for(tuple(name for name in Settings.model_fields if name not in TABLES))
# What it takes to find the agent of this host.
local_flags = flags_for(("state_root",))
# What it takes to speak to a control plane.
CLIENT = (
    *("state_root", "server", "token_file", "ca_file", "certificate_file"),
    *("kubeconfig", "context", "namespace"),
)
client_flags = flags_for(CLIENT)


def _flag(name: str) -> Decorator:
    spelling = "--" + name.replace("_", "-")
    field = Settings.model_fields[name]
    if field.annotation is bool:
        return click.option(f"{spelling}/--no-{spelling[2:]}", name, default=None, help=field.description)
    return click.option(
        spelling, name, multiple=name in SEVERAL, metavar=_metavar(field.annotation), help=field.description
    )


def _metavar(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Literal:
        return "|".join(typing.get_args(annotation))
    for kind, word in ((int, "NUMBER"), (float, "NUMBER"), (dict[str, str], "KEY=VALUE")):
        if annotation == kind:
            return word
    return "PATH" if Path in (annotation, *typing.get_args(annotation)) else "TEXT"
