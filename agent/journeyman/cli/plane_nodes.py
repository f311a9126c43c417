"""`journeyman plane join-token` and `revoke`: who may be a node of a plane."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from journeyman.cli.durations import DURATION
from journeyman.cli.output import print_json
from journeyman.cli.setting_flags import client_flags
from journeyman.client import EmbeddedPlane, plane_at
from journeyman.joining import invite, revoke
from journeyman.settings import Loaded, Settings

of_plane: Callable[[Any], Any] = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Data folder of a plane that runs here."
)


@click.command("join-token", epilog="Example: journeyman plane join-token --name desk --ttl 15m > join.token")
@of_plane
@click.option("--ttl", "seconds", type=DURATION, default="1h", show_default=True, help="How long it is good.")
@click.option("--name", default="", help="Admit this node alone, and let it replace its own credential.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_flags
def join_token(*, loaded: Loaded, data_dir: Path | None, seconds: float, name: str, as_json: bool) -> None:
    """Mint a token with which one machine may join, once.

    The token goes to standard output, and what to do with it to standard error. The plane keeps its hash.
    """
    invitation = asyncio.run(invite(_named(loaded.settings, data_dir), life_seconds=int(seconds), node=name))
    if as_json:
        print_json(vars(invitation) | {"command": invitation.command()})
        return
    print(invitation.token)
    print(
        f"Good until {invitation.expires}. On the machine that joins, with the token in join.token:",
        file=sys.stderr,
    )
    print(f"  {invitation.command()}", file=sys.stderr)


@click.command("revoke", epilog="Example: journeyman plane revoke desk")
@click.argument("name")
@of_plane
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_flags
def revoke_node(*, loaded: Loaded, name: str, data_dir: Path | None, as_json: bool) -> None:
    """End the credential of the node NAME at once: it is lost, stolen, or gone.

    Exits with 66 if it has none.
    """
    asyncio.run(revoke(_named(loaded.settings, data_dir), name))
    if as_json:
        print_json({"revoked": name})
    else:
        print(f"{name} is no longer let in. To let it in again: journeyman plane join-token --name {name}")


def _named(settings: Settings, data_dir: Path | None) -> Settings:
    return settings if data_dir is None else plane_at(settings, EmbeddedPlane(data_dir.absolute()))
