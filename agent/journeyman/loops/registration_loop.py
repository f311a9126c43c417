"""Tells the cluster where the services of this host are reached, and when they are not.

A heartbeat in each registration says that somebody stands behind it; `ready` says whether requests may be
sent there.  What these objects look like, and whose a name is, is decided in `core/registration.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from journeyman.core.fleet_services import ServedService
from journeyman.core.proxy.reach import service_name
from journeyman.core.registration import (
    Claim,
    Registrar,
    Standing,
    State,
    difference,
    is_legacy,
    is_of_node,
    judge,
)
from journeyman.errors import (
    ConflictError,
    ControlPlaneError,
    HostError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
)
from journeyman.model.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from journeyman.ports import Clock, ControlPlane, Document, JsonObject, ObjectRef
from journeyman.settings import Settings
from journeyman.waiting import happens_within
from journeyman.withdrawing import Name, namespaces_in, of_namespace, remember, withdraw

log = structlog.get_logger(__name__)

# How often somebody else may overtake us before that is a failure.
TRIES = 3
# A look at a door that is not open yet costs no request.
LOOK_SECONDS = 2.0
STATES = {Claim.FOREIGN: State.FOREIGN, Claim.CONTESTED: State.CONTESTED}


@dataclass(frozen=True)
class Served:
    """What is registered, each asked anew.

    Attributes:
        services: those that this host serves.
        are_known: whether the control plane has told of them since we run; before that none is withdrawn.
        why_not: why clients on other machines cannot connect now; empty if they can.
    """

    services: Callable[[], Sequence[ServedService]]
    are_known: Callable[[], bool]
    why_not: Callable[[], str]


class RegistrationLoop:
    """The registrations of this host; none, and those of earlier times taken back, where it is not reachable.

    Args:
        plane: the control plane.
        clock: time.
        settings: pauses and deadlines.
        registrar: who registers; None where nobody asked for it.
        node: the name of our FleetNode.
        memory: in which namespaces there may be registrations of ours.
        served: what is registered.
    """

    def __init__(
        self,
        *,
        plane: ControlPlane,
        clock: Clock,
        settings: Settings,
        registrar: Registrar | None,
        node: str,
        memory: Document,
        served: Served,
    ) -> None:
        self._plane = plane
        self._clock = clock
        self._settings = settings
        self._registrar = registrar
        self._node = node
        self._memory = memory
        self._kept = namespaces_in(memory)
        self._served = served
        self._news = asyncio.Event()
        # One word at a time: what was overtaken by a good-bye would undo it.
        self._speaking = asyncio.Lock()
        self._parted = False
        self._said: list[tuple[ServedService, bool]] = []
        self._due_at = clock.monotonic()
        self._standings: dict[Name, tuple[ServedService, Standing]] = {}
        self._slices: dict[Name, JsonObject] = {}
        self._swept: set[Name] | None = None
        self._reaped: set[Name] = set()

    def look_soon(self) -> None:
        """A server or the proxy has changed."""
        self._news.set()

    def snapshot(self) -> list[JsonObject]:
        """What people are shown of each registration."""
        return [standing.shown(served) for served, standing in self._standings.values()]

    async def run(self) -> None:
        """Registers for ever.  An API that does not answer does not end it."""
        failures = 0
        while self._registrar is not None or (self._kept and self._swept is None):
            self._news.clear()
            error = await self._try()
            failures = 0 if error is None else failures + 1
            await happens_within(self._news, self._pause_seconds(failures, error), self._clock)
        await asyncio.Event().wait()

    async def part(self) -> None:
        """Says that nothing is to be sent here any more, within the parting deadline.

        Nothing is said after it.  The Services stay, so that their addresses are the same when we are back.
        """
        self._parted = True
        try:
            async with asyncio.timeout(self._settings.parting_beat_timeout_seconds), self._speaking:
                for served, _ in self._wanted():
                    await self._part_with(served)
        except (ControlPlaneError, TimeoutError) as error:
            log.warning("registrations_not_withdrawn", error=str(error) or "timed out")

    def speak_again(self) -> None:
        """Ends the silence after a good-bye, as the host is back."""
        self._parted = False
        self._said = []
        self._news.set()

    async def _try(self) -> ControlPlaneError | None:
        """What went wrong, if anything did."""
        try:
            async with self._speaking:
                if not self._parted:
                    await self._round()
        except ControlPlaneError as error:
            log.warning("registration_failed", error=str(error))
            return error
        return None

    async def _round(self) -> None:
        wanted = self._wanted()
        names = {_name(served) for served, _ in wanted}
        is_old_news = wanted == self._said and self._clock.monotonic() < self._due_at
        if is_old_news and not self._must_sweep(names):
            return
        for served, is_ready in wanted:
            await self._register(served, is_ready=is_ready)
        if self._must_sweep(names):
            await self._sweep(names)
        self._said = wanted
        self._due_at = self._clock.monotonic() + self._settings.registration_interval_seconds / 2

    def _wanted(self) -> list[tuple[ServedService, bool]]:
        if self._registrar is None:
            return []
        can_connect = not self._served.why_not()
        return [(served, served.is_ready and can_connect) for served in self._served.services()]

    # One registration.

    async def _register(self, served: ServedService, *, is_ready: bool) -> None:
        """Raises ControlPlaneError: what can be tried again with success."""
        self._keep({*self._kept, served.namespace})
        for left in reversed(range(TRIES)):
            try:
                standing = await self._registered(served, is_ready=is_ready)
            except (UnauthorizedError, InvalidError) as error:
                standing = Standing(State.REFUSED, f"{error.message}. {error.advice}".strip())
            except ConflictError:
                if not left:
                    raise
                continue
            self._note(served, standing)
            return

    async def _registered(self, served: ServedService, *, is_ready: bool) -> Standing:
        registrar = self._registrar
        assert registrar is not None, "nobody registers otherwise"
        service_ref, slice_ref = _refs(served)
        service, known = await self._get(service_ref), await self._get(slice_ref)
        now = self._server_time()
        judged = judge(self._node, [each for each in (service, known) if each is not None], now)
        if judged.claim in STATES:
            self._slices.pop(_name(served), None)
            return Standing(STATES[judged.claim], judged.reason)
        await self._write(service_ref, service, registrar.service(served))
        wanted = registrar.slice(served, now, ready=is_ready)
        if known is not None and known.get("addressType") != wanted["addressType"]:
            # It cannot be changed.
            await self._plane.delete(slice_ref)
            known = None
        self._slices[_name(served)] = await self._write(slice_ref, known, wanted)
        await self._reap_legacy(served)
        why_not = self._served.why_not() or "its server does not answer"
        return Standing(State.READY, told_at=now) if is_ready else Standing(State.NOT_READY, why_not, now)

    async def _get(self, ref: ObjectRef) -> JsonObject | None:
        try:
            return await self._plane.get(ref)
        except NotFoundError:
            return None

    async def _write(self, ref: ObjectRef, known: JsonObject | None, wanted: JsonObject) -> JsonObject:
        if known is None:
            return await self._plane.create(ref.collection, wanted)
        patch = difference(known, wanted)
        return known if patch is None else await self._plane.patch(ref, patch)

    async def _reap_legacy(self, served: ServedService) -> None:
        """Deletes Endpoints of an old metal-agent: their mirrored slice would get a share of the requests."""
        name = _name(served)
        if name in self._reaped:
            return
        ref = of_namespace(ENDPOINTS, served.namespace).named(name[1])
        try:
            if is_legacy(await self._plane.get(ref)):
                await self._plane.delete(ref)
                log.info("legacy_endpoints_deleted", service="/".join(name))
        except NotFoundError:
            pass
        except UnauthorizedError as error:
            log.info("legacy_endpoints_not_looked_for", service="/".join(name), error=str(error))
        self._reaped.add(name)

    async def _part_with(self, served: ServedService) -> None:
        """Also with what an earlier agent has registered, if this one has not got to it."""
        name, ref = _name(served), _refs(served)[1]
        assert self._registrar is not None, "nobody registers otherwise"
        wanted = self._registrar.slice(served, self._server_time(), ready=False)
        known = self._slices.pop(name, None) or await self._get(ref)
        try:
            if known is not None and is_of_node(known, self._node):
                await self._write(ref, known, wanted)
        except ConflictError:
            known = await self._plane.get(ref)
            if is_of_node(known, self._node):
                await self._write(ref, known, wanted)
        self._note(served, Standing(State.WITHDRAWN, "this host has said good-bye"))

    def _note(self, served: ServedService, standing: Standing) -> None:
        _, before = self._standings.get(_name(served), (served, None))
        if before is None or (before.state, before.reason) != (standing.state, standing.reason):
            log.info(
                "registration_changed",
                service="/".join(_name(served)),
                state=standing.state.value,
                reason=standing.reason,
            )
        self._standings[_name(served)] = (served, standing)

    # What is no longer served.

    def _must_sweep(self, wanted: set[Name]) -> bool:
        return self._swept != wanted and (self._registrar is None or self._served.are_known())

    async def _sweep(self, wanted: set[Name]) -> None:
        """Takes back what is not wanted any more, and at the start what earlier agents have left."""
        refused = set()
        for namespace in sorted({*self._kept, *self._settings.namespaces_of_services}):
            try:
                gone = await withdraw(self._plane, self._node, [namespace], but=wanted)
                log.info("registrations_looked_for", namespace=namespace, withdrawn=gone)
            except UnauthorizedError as error:
                # Where nothing may be listed nothing can be registered now; the next agent asks again.
                refused.add(namespace)
                log.warning("registrations_not_looked_for", namespace=namespace, error=error.message)
        for name in self._standings.keys() - wanted:
            del self._standings[name]
            self._slices.pop(name, None)
            self._reaped.discard(name)
        self._swept = wanted
        self._keep({namespace for namespace, _ in wanted} | (refused & self._kept))

    def _keep(self, namespaces: set[str]) -> None:
        if namespaces == self._kept:
            return
        try:
            remember(self._memory, namespaces)
        except HostError as error:
            log.warning("registrations_not_remembered", error=error.message)
        else:
            self._kept = namespaces

    # Time.

    def _server_time(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self._plane.clock_offset_seconds())

    def _pause_seconds(self, failures: int, error: ControlPlaneError | None) -> float:
        settings = self._settings
        longest = settings.registration_interval_seconds
        if error is not None:
            backoff = min(longest, 2.0 ** (failures - 1))
            pause = random.uniform(backoff / 2, backoff)
            return min(longest, max(pause, error.retry_after_seconds or 0.0))
        if self._registrar is not None and self._served.why_not():
            return min(LOOK_SECONDS, longest)
        return longest - random.uniform(0, longest * settings.heartbeat_jitter_fraction)


def _name(served: ServedService) -> Name:
    return served.namespace, service_name(served.name)


def _refs(served: ServedService) -> tuple[ObjectRef, ObjectRef]:
    """The Service and the EndpointSlice."""
    namespace, name = _name(served)
    return of_namespace(SERVICES, namespace).named(name), of_namespace(ENDPOINT_SLICES, namespace).named(name)
