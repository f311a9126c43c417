"""Clears away nodes that said they were draining and then fell silent for ten minutes.

NotReady nodes stay: a machine that sleeps or was switched off comes back under its name.
"""

from __future__ import annotations

from datetime import datetime

from journeyman.model.fleet_node import DRAINING_REAPED_AFTER, FleetNodePhase
from journeyman.model.resources import FLEET_NODES
from journeyman_plane.core.actions import Chain, Delete, key_of
from journeyman_plane.core.world import World


def reap_silent_nodes(world: World, now: datetime) -> list[Chain]:
    """Returns a deletion for each such node, bound to its uid and version so that a late beat saves it."""
    return [
        Chain(
            "node_reaped",
            (Delete(key_of(FLEET_NODES, node.metadata), node.metadata.uid, node.metadata.resource_version),),
        )
        for node in world.nodes_by_name()
        if node.status.phase is FleetNodePhase.DRAINING
        and world.silence_of(node, now) > DRAINING_REAPED_AFTER
    ]
