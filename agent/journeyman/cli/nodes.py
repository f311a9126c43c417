"""`journeyman nodes`: the machines of the fleet."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import client_flags
from journeyman.client import NODES, age, control_plane
from journeyman.model.fleet_node import FleetNode
from journeyman.settings import Loaded, Settings

COLUMNS = ("name", "phase", "version", "accelerator", "ram", "models", "task", "heartbeat")


@click.command(epilog="Example: journeyman nodes --json")
@click.option("--json", "as_json", is_flag=True, help="Print the FleetNode objects.")
@client_flags
def command(*, loaded: Loaded, as_json: bool) -> None:
    """List the machines of the fleet, what runs on them and how long ago they beat."""
    items = asyncio.run(_nodes(loaded.settings))
    if as_json:
        print_json(items)
    else:
        print_table(COLUMNS, [_row(FleetNode.from_wire(item)) for item in items])


async def _nodes(settings: Settings) -> list[dict[str, Any]]:
    async with control_plane(settings) as plane:
        return (await plane.list(NODES)).items


def _row(node: FleetNode) -> tuple[str, ...]:
    status = node.status
    capability = status.capability
    return (
        node.metadata.name,
        status.phase.value if status.phase else "Unknown",
        status.agent_version,
        capability.accelerator.value if capability.accelerator else "",
        f"{capability.available_ram_gb}/{capability.total_ram_gb} GiB",
        ",".join(capability.installed_models),
        status.current_task,
        age(status.last_heartbeat_time, datetime.now(UTC)),
    )
