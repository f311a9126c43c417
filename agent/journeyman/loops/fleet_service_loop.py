"""Serves what the fleet asks this host for: follows the services, orders their servers, tells how they are.

What was ordered last is kept on disk, so an agent that starts while the control plane is away goes on with
the servers that it finds, and one that cannot read the services any more ends none.  Which services are ours,
and how each is served, is decided in `core/fleet_services.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from journeyman.core.fleet_rules import Reason, Rules
from journeyman.core.fleet_service_status import Standing, held_by, standing, status_patch
from journeyman.core.fleet_services import Asked, Order, ServedService, is_still_allowed, orders
from journeyman.errors import (
    ConfigError,
    ConflictError,
    ControlPlaneError,
    HostError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
)
from journeyman.following.known_objects import KnownObjects
from journeyman.model.inference import InferenceService, InferenceServiceSpec, Model
from journeyman.model.resources import INFERENCE_SERVICES, MODELS
from journeyman.ports import Clock, ControlPlane, Document, JsonObject
from journeyman.serving.server import Server
from journeyman.settings import Inference, Settings
from journeyman.waiting import happens_within

log = structlog.get_logger(__name__)

FORMAT_VERSION = 1
T = TypeVar("T")


class ModelServers(Protocol):
    """What serves the models of this host."""

    def want(self, others: Sequence[Inference]) -> None:
        """From now on serves these beside those of the settings."""
        ...

    def servers(self) -> Sequence[Server]:
        """All servers, to look at."""
        ...


class FleetServices:
    """The services of the control plane that this host serves; none where the settings do not ask for it.

    Args:
        plane: the control plane.
        clock: time.
        settings: what this host allows; pauses and deadlines.
        node_name: who we are.
        has_metal: whether this host serves models for `metal`.
        models: what serves them.
        memory: where the last orders are kept.
        saves_power: whether the host is on battery.
    """

    def __init__(
        self,
        *,
        plane: ControlPlane,
        clock: Clock,
        settings: Settings,
        node_name: str,
        has_metal: Callable[[], bool],
        models: ModelServers,
        memory: Document,
        saves_power: Callable[[], bool],
    ) -> None:
        self._plane = plane
        self._clock = clock
        self._settings = settings
        self._node_name = node_name
        self._has_metal = has_metal
        self._models = models
        self._memory = memory
        self._orders: list[Order] = []
        self._kept: JsonObject = {}
        self._news = asyncio.Event()
        self._told: dict[str, tuple[str, Standing]] = {}
        self._untold: dict[str, str] = {}
        namespaces = settings.namespaces_of_services
        follow = partial(KnownObjects, plane=plane, clock=clock, settings=settings, saves_power=saves_power)
        self._services: list[KnownObjects[Asked]] = [
            follow(INFERENCE_SERVICES, each, _asked, self._look) for each in namespaces
        ]
        self._sources: list[KnownObjects[Model]] = [
            follow(MODELS, each, Model.from_wire, self._look) for each in namespaces
        ]

        self._followed: list[KnownObjects[Any]] = [*self._services, *self._sources]

    def load(self) -> None:
        """Orders what was ordered last, before anybody has read a service.  Needs no network."""
        if not self._services:
            return
        self._kept = self._memory.load() or {}
        rules, taken = self._rules(), self._taken()
        self._orders = [
            order
            for order in _from_memory(self._kept)
            if is_still_allowed(order, rules) and order.name not in taken
        ]
        self._want()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """What runs for as long as the agent does."""
        if not self._services:
            return []
        return [*(each.run() for each in self._followed), self._keep_telling()]

    def served(self) -> list[ServedService]:
        """The services that this host serves, for those who make them reachable."""
        return [
            ServedService(
                order.namespace, order.name, order.uid, order.name, order.port,
                is_ready=(server.can_be_asked or _is_unproven(server)) and not server.is_leaving,
            )
            for order in self._orders
            if order.options is not None and (server := self._server_of(order)) is not None
        ]  # fmt: skip

    def are_known(self) -> bool:
        """Whether the control plane has told which services are this host's since it runs."""
        return _together(self._services) is not None and _together(self._sources) is not None

    def service_of(self, model: str) -> str:
        """`namespace/name` of the service for which that model is served; empty for one of the settings."""
        found = (order.reference for order in self._orders if order.options and order.name == model)
        return next(found, "")

    def snapshot(self) -> list[JsonObject]:
        """What people are shown of each service that is this host's."""
        return [self._shown(order, self._standing(order)) for order in self._orders]

    def _shown(self, order: Order, here: Standing) -> JsonObject:
        told = self._untold.get(order.reference, "")
        return {
            "service": order.reference,
            "phase": here.phase.value,
            "reason": here.word,
            "message": f"{here.message}; its status is not told: {told}" if told else here.message,
        }

    def models_changed(self) -> None:
        """A server has changed its phase."""
        self._news.set()

    def beat_accepted(self) -> None:
        """The control plane has taken a heartbeat, so the way to it works."""
        for each in self._followed:
            each.try_soon()

    def doubt(self) -> None:
        """What is known may be old, as after a sleep of the host."""
        for each in self._followed:
            each.doubt()

    # What is ordered.

    def _look(self) -> None:
        """Decides anew, once all services and all models are known."""
        services, models = _together(self._services), _together(self._sources)
        if services is None or models is None:
            return
        decided = orders(services.values(), models, self._rules(), self._taken())
        self._orders = [_checked(each) for each in decided]
        ours = {order.reference for order in self._orders}
        self._told = {reference: told for reference, told in self._told.items() if reference in ours}
        self._keep()
        self._want()
        self._news.set()

    def _rules(self) -> Rules:
        settings = self._settings
        return Rules(
            node=self._node_name,
            has_metal=self._has_metal(),
            allow=settings.fleet_service_allow,
            runtime=settings.fleet_service_runtime,
            extra_args=settings.fleet_service_extra_args,
            model_folders=tuple(map(str, settings.fleet_service_model_folders)),
            plain_http_hosts=frozenset(settings.model_plain_http_hosts),
            hub_url=settings.model_hub_url.rstrip("/"),
        )

    def _taken(self) -> set[str]:
        """The names of the models that the settings serve; a path is called by what its file says."""
        own = set(self._settings.served())
        names = {server.model for server in self._models.servers() if server.wanted in own}
        return names | {each.shown_name for each in own}

    def _want(self) -> None:
        ordered = [Inference.of(order.options) for order in self._orders if order.options is not None]
        self._models.want([self._settings.settled(each) for each in ordered])

    def _keep(self) -> None:
        value = _to_memory(self._orders)
        if value == self._kept:
            return
        try:
            self._memory.save(value)
        except HostError as error:
            log.warning("fleet_services_not_kept", error=error.message)
        else:
            self._kept = value

    # What is told.

    def _server_of(self, order: Order) -> Server | None:
        if order.options is None:
            return None
        return next((each for each in self._models.servers() if each.wanted.name == order.name), None)

    def _standing(self, order: Order) -> Standing:
        server = self._server_of(order)
        return standing(order, None if server is None else server.state)

    async def _keep_telling(self) -> None:
        """Tells of each transition, again and again until the control plane has heard it."""
        pause = self._settings.outbox_retry_first_seconds
        while True:
            await self._news.wait()
            self._news.clear()
            results = [await self._tell(order) for order in list(self._orders)]
            if all(results):
                pause = self._settings.outbox_retry_first_seconds
                continue
            await happens_within(self._news, pause, self._clock)
            self._news.set()
            pause = min(2 * pause, self._settings.outbox_retry_max_seconds)

    async def _tell(self, order: Order) -> bool:
        """Whether nothing is left to be told of that service for now."""
        here, told = self._standing(order), self._told.get(order.reference)
        service, server = self._service_of(order), self._server_of(order)
        if server is not None and _is_unproven(server):
            return True
        is_news = told is None or told[0] != order.uid or told[1].kind != here.kind
        if service is None or not is_news or order.reason is Reason.SERVED_ELSEWHERE:
            return True
        refusal = ""
        try:
            await self._write(service, here)
        except (UnauthorizedError, InvalidError, NotFoundError) as error:
            # Asked again at the next transition; more often would change nothing.
            refusal = error.message
            log.warning("service_status_refused", service=order.reference, error=refusal)
        except ControlPlaneError as error:
            log.info("service_status_not_told", service=order.reference, error=error.message)
            return False
        self._untold[order.reference] = refusal
        self._told[order.reference] = (order.uid, here)
        return True

    def _service_of(self, order: Order) -> InferenceService | None:
        """The object, if it has been read since we run, and is still the one that was decided about."""
        found = (_together(self._services) or {}).get(order.reference)
        return found.service if found is not None and found.service.metadata.uid == order.uid else None

    async def _write(self, service: InferenceService, here: Standing) -> None:
        """Raises ControlPlaneError; after a conflict the object is known anew."""
        meta = service.metadata
        now = self._clock.now() + timedelta(seconds=self._plane.clock_offset_seconds())
        body = status_patch(service, here, self._node_name, now)
        if body is None:
            return
        (known,) = (each for each in self._services if each.collection.namespace == meta.namespace)
        ref = known.collection.named(meta.name)
        try:
            known.note(await self._plane.patch(ref, body, subresource="status"))
        except ConflictError:
            known.note(await self._plane.get(ref))
            raise


def _is_unproven(server: Server) -> bool:
    """Whether it was adopted and serves on, while nobody has asked it for a token yet."""
    return server.adopted_endpoint is not None


def _together(kinds: Sequence[KnownObjects[T]]) -> dict[str, T] | None:
    """The objects of all namespaces; None while one of these is unknown."""
    found: dict[str, T] = {}
    for each in kinds:
        objects = each.objects()
        if objects is None:
            return None
        found |= objects
    return found


def _asked(item: JsonObject) -> Asked:
    service = InferenceService.from_wire(item)
    known = {field.alias for field in InferenceServiceSpec.model_fields.values()}
    spec = item.get("spec") or {}
    unhonoured = tuple(sorted(name for name, value in spec.items() if value and name not in known))
    return Asked(service, held_by(service.status.conditions), unhonoured)


def _checked(order: Order) -> Order:
    """Refuses options that cannot be, such as a type of cache that nobody knows."""
    try:
        if order.options is not None:
            Inference.of(order.options)
    except ConfigError as error:
        return replace(order, options=None, reason=Reason.OPTION_REFUSED, message=error.message)
    return order


def _to_memory(decided: Sequence[Order]) -> JsonObject:
    kept = [
        {
            "namespace": order.namespace,
            "name": order.name,
            "uid": order.uid,
            "port": order.port,
            "options": dict(order.options),
        }
        for order in decided
        if order.options is not None
    ]
    return {"format": FORMAT_VERSION, "services": kept}


def _from_memory(value: JsonObject) -> list[Order]:
    """What `_to_memory` wrote; options that a later release knows are left out, not the whole service."""
    if value.get("format") != FORMAT_VERSION:
        return []
    try:
        found = [
            Order(
                one["namespace"],
                one["name"],
                one["uid"],
                one["port"],
                {name: option for name, option in one["options"].items() if name in Inference.model_fields},
            )
            for one in value["services"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        log.warning("fleet_services_not_remembered", error=repr(error))
        return []
    return [order for order in map(_checked, found) if order.options is not None]
