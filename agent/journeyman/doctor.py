"""`journeyman doctor`: looks at the agent, its service, its host and the way to its control plane."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime, timedelta

from journeyman import __version__
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.system_clock import SystemClock
from journeyman.client import NODES, with_server
from journeyman.control import call
from journeyman.core.beat import beats_elsewhere
from journeyman.core.registration import State
from journeyman.errors import ControlPlaneError, JourneymanError, NotFoundError
from journeyman.installation.checks import instance_of
from journeyman.model.fleet_node import FleetNode
from journeyman.ports import JsonObject
from journeyman.settings import Settings
from journeyman_updater.checkup import Check, keeper_of, look

__all__ = ["Check", "examine"]

LARGEST_SKEW = timedelta(seconds=30)
"""Heartbeats count as stale after 90 s, and certificates have a time, too."""
FORBIDDEN = 403
TROUBLED = {State.FOREIGN.value, State.CONTESTED.value, State.REFUSED.value}
ADVICE = "See `registrations` of `journeyman status`, and docs/proxy.md."


def examine(settings: Settings) -> list[Check]:
    """All checks; one that fails keeps none of the others from being made."""
    return [*agent(settings), *look(settings.root), *asyncio.run(server(settings))]


def agent(settings: Settings) -> list[Check]:
    """Whether one agent runs on the root, the one that the service manager keeps, and beats."""
    keeper = keeper_of(settings.root)
    try:
        status = call(settings.root, "status", timeout_seconds=5)
    except JourneymanError as error:
        is_down = keeper is not None and keeper.pid is None
        advice = "Run `journeyman install`, which starts it." if is_down else error.advice
        return [Check("agent", False, error.message, advice)]
    pid, found = status["pid"], []
    if keeper is not None and keeper.pid != pid:
        found.append(
            Check(
                "agent",
                False,
                f"two agents: the one that answers has the pid {pid}, and {keeper.service} keeps "
                + (f"another one, {keeper.pid}" if keeper.pid else "trying to start its own"),
                f"Stop the one that was started by hand: `kill {pid}`.",
            )
        )
    if said := status.get("lastHeartbeatError"):
        found.append(
            Check("heartbeat", False, f"the last heartbeat failed: {said}", "See the check `server`.")
        )
    version = f"{status['nodeName']} runs {status['version']} with the pid {pid}"
    return [*(found or [Check("agent", True, version)]), *_reach(status)]


def _reach(status: JsonObject) -> list[Check]:
    """Whether other machines reach the proxy, where they shall, and whether the cluster knows."""
    proxy = status.get("proxy") or {}
    if "reachableAt" not in proxy:
        return []
    where = proxy["reachableAt"]
    if why_not := proxy["whyNotReachable"]:
        advice = "See `proxy_reach_address` and `proxy_reach_port` in config.toml."
        return [Check("reach", False, f"not reachable at {where}: {why_not}", advice)]
    troubled = [each for each in status.get("registrations") or () if each["state"] in TROUBLED]
    return [
        Check("reach", True, f"reachable at {where}"),
        *(
            Check("reach", False, f"{each['service']} is not registered: {each['reason']}", ADVICE)
            for each in troubled
        ),
    ]


def _other_agent(settings: Settings, found: JsonObject, now: datetime) -> list[Check]:
    """Another machine that beats under our name; an agent that sees that does not run."""
    node, root = FleetNode.from_wire(found), settings.root
    # Whoever may not read who we are cannot tell us from others.
    may_know = os.access(root.path, os.X_OK) and (
        not root.identity_file.exists() or os.access(root.identity_file, os.R_OK)
    )
    if not may_know or not beats_elsewhere(node, instance_of(root), now):
        return []
    return [
        Check(
            "node",
            False,
            f"two agents: another one beats as FleetNode {node.metadata.name}",
            "Stop that one, or give this one another node_name in config.toml and restart it.",
        )
    ]


async def server(settings: Settings) -> list[Check]:
    """Whether the control plane answers and takes the credential, and whether the clocks agree.

    It is the one that `journeyman up` runs here where no other is named.
    """
    try:
        settings = with_server(settings)
        plane = HttpControlPlane(settings, SystemClock(), version=__version__)
    except JourneymanError as error:
        return [Check("server", False, error.message, error.advice)]
    node: JsonObject | None = None
    try:
        if settings.node_name is None:
            await plane.list(NODES)
        else:
            node = await plane.get(NODES.named(settings.node_name))
    except NotFoundError as error:
        return [Check("server", False, error.message, "The agent makes its node at its first heartbeat.")]
    except ControlPlaneError as error:
        if error.status != FORBIDDEN or settings.node_name is not None:
            return [Check("server", False, error.message, error.advice)]
    finally:
        await plane.aclose()
    skew = timedelta(seconds=plane.last_offset_seconds())
    others = _other_agent(settings, node, SystemClock().now() + skew) if node else []
    if abs(skew) > LARGEST_SKEW:
        word = "behind" if skew > timedelta() else "ahead of"
        seconds = abs(skew).total_seconds()
        return [
            *others,
            Check(
                "clock",
                False,
                f"the clock of this host is {seconds:.0f} s {word} that of {plane.access.server}",
                "Switch time synchronisation on, here or there.",
            ),
        ]
    return [
        *others,
        Check("server", True, f"{plane.access.server} answers and takes the credential"),
        Check("clock", True, "right"),
    ]
