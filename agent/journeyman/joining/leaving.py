"""`journeyman leave`: hands back the tasks, takes the FleetNode and the credential back, and forgets both."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from journeyman import __version__
from journeyman.adapters.durable_json import JsonFile, JsonSpool
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.root_lock import root_lock
from journeyman.adapters.system_clock import SystemClock
from journeyman.client import NODES, tasks_of
from journeyman.control import call
from journeyman.core.beat import parting_patch
from journeyman.core.task_patches import hand_back_patch
from journeyman.errors import (
    AlreadyRunningError,
    ConfigError,
    ConflictError,
    ControlPlaneError,
    HostError,
    NotFoundError,
    UnauthorizedError,
)
from journeyman.joining import files
from journeyman.joining.entering import NODE_PREFIX
from journeyman.joining.invitations import revoke_credential
from journeyman.joining.model import Say
from journeyman.model.agentic_task import AgenticTask
from journeyman.settings import Settings
from journeyman.withdrawing import namespaces_in, remember, withdraw
from journeyman_updater.contract import StateRoot

POLL_SECONDS = 0.05
STOP_SECONDS = 60.0


@dataclass
class Left:
    """What a leave has done.

    Attributes:
        name: of the FleetNode that was given back.
        tasks: that others may do now, `namespace/name`.
        registrations: that were taken back, such as `Service default/coder`.
        node: `deleted`, `parted` where we may not delete it, or `unknown` where nobody could be asked.
        removed: files.
    """

    name: str
    tasks: list[str] = field(default_factory=list)
    registrations: list[str] = field(default_factory=list)
    node: str = "unknown"
    removed: list[str] = field(default_factory=list)


def leave(settings: Settings, say: Say, *, force: bool) -> Left:
    """Gives the node back.

    Args:
        settings: of the state root.
        say: is told what is being done, a line each.
        force: leave although results are undelivered, or the control plane does not answer.

    Raises:
        ConfigError: this host has not joined.
        HostError: results are undelivered, or the agent does not stop; nothing was given back.
        ControlPlaneError: the control plane does not take the node back; the same command may be tried again.
    """
    root = settings.root
    if not files.has_joined(root) or settings.node_name is None:
        raise ConfigError(f"no join is in force in {root.path}", "Name the state root with --state-root.")
    with _without_agent(root, say):
        undelivered = len(JsonSpool(root.outbox).entries())
        if undelivered and not force:
            raise HostError(
                f"{undelivered} results are not delivered yet",
                "Start the agent and wait until `journeyman status` shows none, or say --force.",
            )
        left = Left(settings.node_name)
        say(f"giving {left.name} back")
        try:
            asyncio.run(_give_back(settings, left))
        except ControlPlaneError as error:
            if not force:
                raise
            say(f"not given back: {error.message}")
        left.removed = files.take_away(root)
    return left


@contextmanager
def _without_agent(root: StateRoot, say: Say) -> Iterator[None]:
    """Stops the agent, and holds its place: a service manager that starts it again finds it taken."""
    clock = SystemClock()
    deadline = clock.monotonic() + STOP_SECONDS
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(root_lock(root))
                break
            except AlreadyRunningError:
                if clock.monotonic() > deadline:
                    raise
            with contextlib.suppress(HostError):
                call(root, "stop", workers=True)
                say("stopping the agent")
            asyncio.run(clock.sleep(POLL_SECONDS))
        yield


async def _give_back(settings: Settings, left: Left) -> None:
    plane = HttpControlPlane(settings, SystemClock(), version=__version__)
    try:
        left.tasks = await _hand_back(plane, settings, left.name)
        left.registrations = await _withdraw(plane, settings.root, left.name)
        left.node = await _delete_node(plane, left.name)
        if _is_node_credential(settings):
            with contextlib.suppress(NotFoundError):
                await revoke_credential(plane, left.name)
    finally:
        await plane.aclose()


async def _hand_back(plane: HttpControlPlane, settings: Settings, name: str) -> list[str]:
    """Makes the tasks that are still ours Pending; the agent has done so if it could."""
    handed = []
    lists = [await plane.list(tasks_of(namespace)) for namespace in settings.namespaces_of_tasks]
    for item in (item for found in lists for item in found.items):
        task = AgenticTask.from_wire(item)
        if task.status.assigned_node != name or not task.is_in_flight:
            continue
        now = SystemClock().now() + timedelta(seconds=plane.last_offset_seconds())
        ref = tasks_of(task.metadata.namespace).named(task.metadata.name)
        with contextlib.suppress(ConflictError, NotFoundError):
            await plane.patch(ref, hand_back_patch(task, "the node leaves", now), subresource="status")
            handed.append(task.reference)
    return handed


async def _withdraw(plane: HttpControlPlane, root: StateRoot, name: str) -> list[str]:
    """Takes back what the agent has registered as reachable."""
    memory = JsonFile(root.registrations)
    namespaces = namespaces_in(memory)
    if not namespaces:
        return []
    gone = await withdraw(plane, name, namespaces)
    remember(memory, ())
    return gone


async def _delete_node(plane: HttpControlPlane, name: str) -> str:
    try:
        await plane.delete(NODES.named(name))
    except NotFoundError:
        return "deleted"
    except UnauthorizedError:
        # The operator's controllers reap it, or the admin deletes it; until then nothing is scheduled there.
        await plane.patch(NODES.named(name), parting_patch(), subresource="status")
        return "parted"
    return "deleted"


def _is_node_credential(settings: Settings) -> bool:
    token = settings.root.token_file
    return token.exists() and token.read_text(encoding="ascii").startswith(NODE_PREFIX)
