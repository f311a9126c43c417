"""Registers the FleetNode and beats: one request a heartbeat, blocked by nothing else.

It leaves to others why the node is held, what the host can do, and what an update request leads to: it is
told the first two, and hands on the third.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from journeyman.core.beat import (
    Identity,
    beat_patch,
    error_word,
    held,
    is_taken,
    metadata_patch,
    parting_patch,
    registration,
    registration_patch,
)
from journeyman.core.gates.conditions import Told, conditions_patch
from journeyman.core.holds import Holds
from journeyman.core.node_memory import NodeMemory
from journeyman.errors import (
    ConflictError,
    ControlPlaneError,
    NameTakenError,
    NotFoundError,
    UnauthorizedError,
)
from journeyman.model.fleet_node import Capability, FleetNode, FleetNodePhase
from journeyman.model.resources import FLEET_NODES
from journeyman.ports import Clock, Collection, ControlPlane, Document
from journeyman.settings import Settings
from journeyman.waiting import happens_within

log = structlog.get_logger(__name__)

NODES = Collection(FLEET_NODES.group, FLEET_NODES.version, FLEET_NODES.plural)


@dataclass(frozen=True)
class NodeView:
    """What a heartbeat says of this node; each is asked anew at each beat.

    Attributes:
        holds: who keeps work away.
        capability: what the host can do.
        told: the conditions of the gates, and that of an update.
        updatable: whether a release should wait for this node, as the value of its label.
        models: what was measured of its models, as the value of an annotation; None for no news.
    """

    holds: Callable[[datetime], Holds]
    capability: Callable[[], Capability]
    told: Callable[[], Sequence[Told]]
    updatable: Callable[[], str]
    models: Callable[[], str | None]


class HeartbeatLoop:
    """Speaks for this node.

    Args:
        plane: the control plane.
        clock: time.
        identity: who beats.
        memory: where what others gave the node is remembered, as a node that has to be POSTed again lost it;
            it exists once the control plane has taken a beat of this installation.
        settings: intervals and deadlines.
        view: what is said of this node.
        accepted: called with the node that the control plane answered with, after each beat.
        attempted: called after each attempt, whatever came of it.
    """

    def __init__(
        self,
        *,
        plane: ControlPlane,
        clock: Clock,
        identity: Identity,
        memory: Document,
        settings: Settings,
        view: NodeView,
        accepted: Callable[[FleetNode], None],
        attempted: Callable[[], None],
    ) -> None:
        self._plane = plane
        self._clock = clock
        self._identity = identity
        self._ref = NODES.named(identity.node_name)
        self._memory = memory
        self._remembered = memory.load()
        self._settings = settings
        self._view = view
        self._accepted = accepted
        self._attempted = attempted
        self._registered = False
        self._poke = asyncio.Event()
        # One beat at a time: a beat that was overtaken by the parting beat would undo it.
        self._speaking = asyncio.Lock()
        self._parted = False
        self.last_accepted_at: datetime | None = None
        self.last_error = ""
        self.last_error_word = ""
        self._asked_pause_seconds = 0.0
        self.attempts = 0
        self.acceptances = 0

    def beat_soon(self) -> None:
        """Asks for a beat now, as something that the control plane should know has changed."""
        self._poke.set()

    async def run(self) -> None:
        """Beats for ever.

        Raises:
            NameTakenError: another agent beats under our name; going on would make two liars of us.
            UnauthorizedError: the control plane refused us and has never taken a beat of this installation,
                so it is the credential that is wrong, not the weather.
        """
        failures = 0
        while True:
            self._poke.clear()
            failures = 0 if await self._try_to_beat() else failures + 1
            self._attempted()
            await happens_within(self._poke, self._pause_seconds(failures), self._clock)

    async def part(self, *, work_goes_on: bool) -> None:
        """Says good-bye, within the parting deadline; a control plane that does not hear it is no error.

        Nothing is said after it: a beat on its way is waited for, and those to come are not sent.

        Args:
            work_goes_on: whether workers run on without us.  Their claims must not lapse at once, so the
                node then stays Draining with a fresh heartbeat, and the lease runs out by itself.
        """
        self._parted = True
        try:
            async with asyncio.timeout(self._settings.parting_beat_timeout_seconds), self._speaking:
                if work_goes_on:
                    await self._beat()
                elif self._registered:
                    await self._plane.patch(self._ref, parting_patch(), subresource="status")
                    log.info("parting_beat_sent")
        except (ControlPlaneError, TimeoutError) as error:
            log.warning("parting_beat_failed", error=str(error) or "timed out")

    def speak_again(self) -> None:
        """Ends the silence after a good-bye, as the host is back."""
        self._parted = False
        self._poke.set()

    async def _try_to_beat(self) -> bool:
        self.attempts += 1
        error: Exception | None = None
        try:
            async with asyncio.timeout(self._settings.heartbeat_timeout_seconds), self._speaking:
                if not self._parted:
                    await self._register_and_beat()
        except NotFoundError as missing:
            log.warning("fleet_node_missing", node_name=self._identity.node_name)
            self._registered = False
            self._poke.set()
            error = missing
        except (ControlPlaneError, TimeoutError) as failure:
            if isinstance(failure, UnauthorizedError) and self._remembered is None:
                raise
            log.warning("heartbeat_failed", error=str(failure) or "timed out")
            error = failure
        self.last_error = "" if error is None else str(error) or "timed out"
        self.last_error_word = error_word(error)
        asked = error.retry_after_seconds if isinstance(error, ControlPlaneError) else None
        self._asked_pause_seconds = asked or 0.0
        return error is None

    async def _register_and_beat(self) -> None:
        if not self._registered:
            await self._register()
        await self._beat()

    async def _register(self) -> None:
        """Makes the FleetNode exist and be ours."""
        remembered = NodeMemory.from_json(self._remembered)
        try:
            node = FleetNode.from_wire(await self._plane.get(self._ref))
        except NotFoundError:
            body = registration(
                self._identity,
                labels=remembered.labels,
                annotations=remembered.annotations,
                roles=[role for role in remembered.roles if role not in self._identity.roles],
            )
            created = await self._plane.create(NODES, body)
            node = FleetNode.from_wire(created)
            log.info("fleet_node_registered", node_name=self._identity.node_name)
        self._refuse_if_taken(node)
        roles = remembered.roles_beside(self._identity, node.spec.roles)
        patch = registration_patch(self._identity, node, roles)
        if patch is not None:
            await self._plane.patch(self._ref, patch)
        self._registered = True

    async def _beat(self) -> None:
        now = self._server_time()
        holds = self._view.holds(self._clock.now())
        phase = FleetNodePhase.DRAINING if holds else FleetNodePhase.READY
        patch = beat_patch(self._identity, phase, self._view.capability(), now)
        node = FleetNode.from_wire(await self._plane.patch(self._ref, patch, subresource="status"))
        self._refuse_if_taken(node)
        self.last_accepted_at = self._clock.now()
        self.acceptances += 1
        self._remember(node)
        self._accepted(node)
        await self._tell_why(node, holds, now)

    async def _tell_why(self, node: FleetNode, holds: Holds, now: datetime) -> None:
        """Says what changes seldom: conditions, label and annotation, each on its transitions alone."""
        conditions = conditions_patch(node, [held(holds.summary()), *self._view.told()], now)
        metadata = metadata_patch(node, self._view.updatable(), self._view.models())
        try:
            if conditions is not None:
                await self._plane.patch(self._ref, conditions, subresource="status")
            if metadata is not None:
                await self._plane.patch(self._ref, metadata)
        except ConflictError:
            # Somebody else wrote in between; the next beat brings what is there now.
            log.info("conditions_postponed")

    def _refuse_if_taken(self, node: FleetNode) -> None:
        if is_taken(self._identity, node, self._server_time()):
            raise NameTakenError(
                f"another agent beats as FleetNode {self._identity.node_name}",
                "stop that agent, or give this one another name with --node-name",
            )

    def _remember(self, node: FleetNode) -> None:
        seen = NodeMemory.of(self._identity, node).to_json()
        if seen != self._remembered:
            self._memory.save(seen)
            self._remembered = seen

    def _server_time(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self._plane.clock_offset_seconds())

    def _pause_seconds(self, failures: int) -> float:
        """A jittered interval after a beat that landed; a short, growing pause after one that did not."""
        settings = self._settings
        if failures == 0:
            spread = settings.heartbeat_interval_seconds * settings.heartbeat_jitter_fraction
            return settings.heartbeat_interval_seconds - random.uniform(0, spread)
        longest = min(settings.heartbeat_interval_seconds, 2.0 ** (failures - 1))
        pause = max(random.uniform(longest / 2, longest), self._asked_pause_seconds)
        # A server that asks for patience gets it as far as our claims allow: they live by our beats.
        return min(pause, settings.heartbeat_interval_seconds)
