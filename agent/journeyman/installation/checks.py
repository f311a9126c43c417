"""All that can be known before anything is made."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import timedelta

import journeyman_updater.installation as updater
from journeyman import __version__
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.system_clock import SystemClock
from journeyman.client import NODES
from journeyman.control import call
from journeyman.core.beat import beats_elsewhere
from journeyman.core.node_name import NodeIdentity
from journeyman.errors import (
    AlreadyRunningError,
    ConfigError,
    ControlPlaneError,
    HostError,
    NameTakenError,
    NotFoundError,
)
from journeyman.installation.model import Request, explained
from journeyman.model.fleet_node import FleetNode
from journeyman.settings import Settings, load_settings
from journeyman_updater.contract import StateRoot

KEPT = ("server", "node_name", "models", "allow_insecure_http", "updates_source")
"""Settings that go into config.toml; those of files go there as the names of our copies."""
FORBIDDEN = 403


def check(request: Request) -> None:
    """All that can be known before anything is made.

    Raises:
        JourneymanError: why it cannot be.
    """
    target = request.target
    if request.settings.server is None and request.settings.kubeconfig is None:
        raise ConfigError(
            "no control plane is set",
            "Name one with --server and --token-file, or with --join.",
        )
    with explained(target.root):
        made = updater.read_made(target.root)
        others = updater.others_on(target)
        has_release = updater.active_version(target.root) is not None
    if others:
        raise HostError(
            f"another agent is registered here: {', '.join(others)}",
            "Two agents of one host would fight over its work: stop and remove that one first.",
        )
    if made is not None and made.service != target.service:
        raise ConfigError(
            f"{target.root.path} is installed with --service {made.service}",
            "Run `journeyman uninstall` first; it keeps models and undelivered results.",
        )
        if request.artifact is None and not has_release:
            # What runs now becomes the first release, if all of it can be found.
            updater.running_files()
    if made is None:
        _refuse_foreign_hands(target)
        _refuse_running(target.root)
    else:
        _refuse_other_settings(request)
    asyncio.run(_check_plane(request.settings))


def _refuse_foreign_hands(target: updater.Target) -> None:
    """What root starts must not lie where somebody else can put another thing in its place."""
    found = updater.foreign_hands(target.root.path) if target.user else []
    if found:
        raise ConfigError(
            f"a system install cannot lie in {target.root.path}: not only root may change {found[-1]}",
            "Leave --state-root out, or name a folder that root alone can replace.",
        )


def _refuse_running(root: StateRoot) -> None:
    try:
        call(root, "status", timeout_seconds=2)
    except HostError:
        return
    raise AlreadyRunningError(
        f"an agent that was not installed runs on {root.path}",
        "Stop it first, or name another root with --state-root.",
    )


def _refuse_other_settings(request: Request) -> None:
    there = load_settings({"state_root": request.target.root.path}, {}).settings
    for name in KEPT:
        wanted, kept = getattr(request.settings, name), getattr(there, name)
        if wanted != kept:
            raise ConfigError(
                f"{name} is {kept!r} in {there.root.config_file}, and {wanted!r} was asked for",
                "Edit that file and restart the agent, or leave the option out.",
            )


async def _check_plane(settings: Settings) -> None:
    """Whether the server answers, takes the token, and has no other agent under our name."""
    plane = HttpControlPlane(settings, SystemClock(), version=__version__)
    try:
        if settings.node_name is None:
            await plane.list(NODES)
            return
        node = FleetNode.from_wire(await plane.get(NODES.named(settings.node_name)))
    except NotFoundError:
        return
    except ControlPlaneError as error:
        # A node's own token may read nothing but its own node.
        if error.status == FORBIDDEN and settings.node_name is None:
            return
        raise
    finally:
        await plane.aclose()
    now = SystemClock().now() + timedelta(seconds=plane.last_offset_seconds())
    if beats_elsewhere(node, instance_of(settings.root), now):
        raise NameTakenError(
            f"another agent beats as FleetNode {settings.node_name}",
            "Stop that agent, or give this one another name with --node-name.",
        )


def instance_of(root: StateRoot) -> str | None:
    """The id of this installation; None if it has none yet, or it may not be read."""
    with suppress(OSError, ValueError):
        identity = NodeIdentity.from_json(json.loads(root.identity_file.read_bytes()))
        return identity.instance if identity else None
    return None
