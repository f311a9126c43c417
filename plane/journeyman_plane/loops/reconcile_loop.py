"""The loop behind the reconcilers: follows the store, lets them decide, carries out what they ask for.

The plane has no other writer of its own; agents and people write over HTTP at the same time.  So each
action is bound to the version that it was decided upon, and one that comes too late is dropped: the
change that was in its way wakes the loop, and the next pass decides anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

import structlog

from journeyman.errors import ConflictError, ExpiredError, InvalidError, NotFoundError
from journeyman_plane.core.actions import Action, Chain, Delete, PatchAnnotations, PatchStatus
from journeyman_plane.core.agent_release import roll_out_releases
from journeyman_plane.core.claim_expiry import expire_claims
from journeyman_plane.core.node_reaping import reap_silent_nodes
from journeyman_plane.core.node_staleness import judge_heartbeats
from journeyman_plane.core.scheduler import schedule_tasks
from journeyman_plane.core.update_requests import agree_update_requests
from journeyman_plane.core.world import RESOURCES, World
from journeyman_plane.ports import Clock, JsonObject, Key, Preconditions, Store

Reconciler = Callable[[World, datetime], list[Chain]]

# In this order, as each sees what the one before it has done.
RECONCILERS: tuple[Reconciler, ...] = (
    judge_heartbeats,
    reap_silent_nodes,
    expire_claims,
    schedule_tasks,
    roll_out_releases,
    agree_update_requests,
)

_log = structlog.get_logger(__name__)


async def run_reconcilers(
    store: Store,
    clock: Clock,
    *,
    tick_seconds: float = 1.0,
    rest_seconds: float = 0.05,
    reconcilers: Sequence[Reconciler] = RECONCILERS,
) -> None:
    """Runs until it is cancelled.

    A pass is made as soon as something has changed that can change a decision, and otherwise at each tick,
    as heartbeats grow stale and soaks end by the mere passing of time.

    Args:
        store: the objects.
        clock: the time that heartbeats are judged by.
        tick_seconds: how long a decision that only time brings may be late.
        rest_seconds: the shortest time between two passes, so that a burst of writes costs one pass.
        reconcilers: what decides, in order.
    """
    follower = Follower(store, clock.now())
    while True:
        try:
            follower.has_news = False
            for reconciler in reconcilers:
                await _reconcile(reconciler, follower, store, clock)
                # Requests are served between two decisions and between two writes, however many there are.
                await asyncio.sleep(0)
            await asyncio.sleep(rest_seconds)
            await _wait_for_news(follower, store, tick_seconds, rest_seconds)
        except Exception:  # noqa: BLE001  A full disk passes; a plane without reconcilers is of no use.
            _log.exception("pass_failed")
            await asyncio.sleep(tick_seconds)


class Follower:
    """A world that is kept equal to the store.

    Args:
        store: what is followed; it is read in full once, and then change by change.
        listening_since: when the plane began to hear heartbeats.
    """

    def __init__(self, store: Store, listening_since: datetime) -> None:
        self._store = store
        self.world = World(listening_since)
        self.position = 0
        self.has_news = True
        self._read_all()

    def catch_up(self) -> None:
        """Takes in what was written since the last time; notes whether any of it can change a decision."""
        try:
            changes = self._store.changes(self.position)
        except ExpiredError:
            # More was written in one rest than the log keeps.
            self._read_all()
            return
        for change in changes:
            self.position = change.resource_version
            if change.type == "DELETED":
                self.has_news |= self.world.remove(change.object)
            else:
                self._put(change.object)

    def _read_all(self) -> None:
        self.world = World(self.world.listening_since)
        # What is written between two of these reads is read again as a change, which does no harm.
        self.position = self._store.version()
        for resource in RESOURCES:
            for body in self._store.select(resource.group, resource.plural)[0]:
                self._put(body)
        self.has_news = True

    def _put(self, body: JsonObject) -> None:
        try:
            self.has_news |= self.world.put(body)
        except InvalidError as error:
            _log.warning("object_ignored", name=body["metadata"]["name"], problem=error.message)
            self.has_news = True


async def _wait_for_news(follower: Follower, store: Store, tick_seconds: float, rest_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + tick_seconds
    follower.catch_up()
    while not follower.has_news and (left := deadline - loop.time()) > 0:
        await store.wait_for_change(follower.position, left)
        follower.catch_up()
        if not follower.has_news:
            # A fleet's heartbeats come one by one; they are taken in by the handful.
            await asyncio.sleep(rest_seconds)


async def _reconcile(reconciler: Reconciler, follower: Follower, store: Store, clock: Clock) -> None:
    follower.catch_up()
    try:
        chains = reconciler(follower.world, clock.now())
    except Exception:  # noqa: BLE001  What one reconciler cannot cope with must not stop the others.
        _log.exception("reconciler_failed", reconciler=reconciler.__name__)
        return
    for chain in chains:
        carry_out(chain, store)
        await asyncio.sleep(0)


def carry_out(chain: Chain, store: Store) -> bool:
    """Takes the actions of a chain in order, up to the first that comes too late.

    Returns:
        Whether all of them were taken.
    """
    written: dict[Key, str] = {}
    for action in chain.actions:
        try:
            result = _act(action, store, written.get(action.key, action.resource_version))
        except (ConflictError, NotFoundError) as error:
            _log.info("chain_dropped", decision=chain.decision, object=action.key.name, problem=error.message)
            return False
        written[action.key] = result["metadata"]["resourceVersion"]
    _log.info("chain_carried_out", decision=chain.decision, object=chain.actions[-1].key.name)
    return True


def _act(action: Action, store: Store, resource_version: str) -> JsonObject:
    match action:
        case PatchStatus(key, status):
            condition = Preconditions(resource_version=resource_version)
            return store.patch(key, {"status": status}, status=True, preconditions=condition)
        case PatchAnnotations(key, annotations):
            condition = Preconditions(resource_version=resource_version)
            return store.patch(key, {"metadata": {"annotations": annotations}}, preconditions=condition)
        case Delete(key, uid):
            return store.delete(key, Preconditions(uid=uid, resource_version=resource_version))
