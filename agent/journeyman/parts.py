"""The parts of the daemon of this host, put together: what each is made of, and what they tell each other.

Their life, from start to stop, is the business of `app`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import MutableMapping
from datetime import datetime, timedelta

from journeyman import __version__
from journeyman.adapters.durable_json import JsonFile, JsonSpool
from journeyman.adapters.hold_book import HoldBook
from journeyman.adapters.host_probe import PsutilHostProbe
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.inference_probe import HttpInferenceProbe
from journeyman.adapters.key_file import established_key, keys_of
from journeyman.adapters.model_room import ModelRoom
from journeyman.adapters.model_store import FileModelStore
from journeyman.adapters.node_file import NodeFileKeeper
from journeyman.adapters.node_identity import establish_identity, read_host_facts
from journeyman.adapters.posix_workers import PosixWorkers
from journeyman.adapters.proxy_traffic import ProxyTraffic
from journeyman.adapters.release_report import ReleaseReport
from journeyman.adapters.speed_probe import HttpLongSpeedProbe, HttpSpeedProbe
from journeyman.adapters.system_clock import SystemClock
from journeyman.adapters.tools_probe import HttpToolsProbe
from journeyman.adapters.update_progress import told_of_update
from journeyman.adapters.updater_waker import UpdaterWaker
from journeyman.core import speed
from journeyman.core.beat import Identity
from journeyman.core.capability import capability_of
from journeyman.core.gates.marks import marks_from
from journeyman.core.holds import Hold, Holds, Owner
from journeyman.core.node_name import checked_name
from journeyman.core.speed import Quantity
from journeyman.core.worker_specs import Interpreter
from journeyman.credentials import renewal_of
from journeyman.host_gates import (
    gates_of_this_host,
    keep_awake_of_this_host,
    ladder_of_this_host,
    lane_of_this_host,
)
from journeyman.loops.fleet_service_loop import FleetServices
from journeyman.loops.heartbeat_loop import HeartbeatLoop, NodeView
from journeyman.loops.model_server_loop import ModelServerLoop
from journeyman.loops.proxy_loop import ProxyLoop
from journeyman.loops.remote_verbs import RemoteVerbs
from journeyman.loops.speed_loop import SpeedLoop
from journeyman.model.fleet_node import LABEL_AGENT, Capability, FleetNode
from journeyman.node_tasks import Means, NodeTasks
from journeyman.ports import JsonObject
from journeyman.reachable import Reachability, registrations_of_this_host, routes_of_this_host
from journeyman.serving.neighbours import Neighbours
from journeyman.settings import Settings

# Accelerators whose memory is not that of the host.
OWN_MEMORY = {"cuda", "vulkan"}
LONGEST_ASIDE_SECONDS = 1.0


class Parts:
    """All parts, not yet running.

    Args:
        settings: all settings.
        environ: the environment; the trial's words of the guard are taken out of it.

    Raises:
        JourneymanError: one of them cannot be made.
    """

    def __init__(self, settings: Settings, environ: MutableMapping[str, str]) -> None:
        root = settings.root
        self._settings = settings
        self.clock = SystemClock()
        self.release = ReleaseReport(root, environ)
        self._updater = UpdaterWaker(root, environ)
        self._probe = PsutilHostProbe(probe_timeout_seconds=settings.probe_timeout_seconds)
        self.identity = _identity(settings, self._probe)
        self.plane = HttpControlPlane(settings, self.clock, version=__version__)
        self._node_file = NodeFileKeeper(root, self.identity.node_name, self.plane.access)
        self.holds = HoldBook(JsonFile(root.agent / "holds.json"), self._holds_changed)
        self.workers = PosixWorkers(root.workers)
        self._interpreter = Interpreter.of(sys.executable, environ, is_bare=bool(sys.flags.no_site))
        self._traffic = ProxyTraffic(self._proxy_url, lambda: established_key(root.proxy_key_file))
        self.models = self._model_servers(FileModelStore.of(settings, environ))
        self.speeds = self._speed_loop()
        self.proxy = self._proxy_loop()
        self.gates = gates_of_this_host(
            settings,
            self.clock,
            busy=self._is_busy,
            changed=self._holds_changed,
            judged=self._judged,
            slept=self._slept,
        )
        self.awake = keep_awake_of_this_host(settings, self.gates, busy=self._is_busy)
        self.lane = lane_of_this_host(
            settings,
            self.clock,
            self.workers,
            self.gates,
            holds=lambda: self.live_holds(self.clock.now()),
            changed=self.awake.decide,
        )
        self.services = self._fleet_services()
        self.reachability = Reachability(settings, self.proxy)
        self.registrations = registrations_of_this_host(
            settings,
            self.plane,
            self.clock,
            node=self.identity.node_name,
            services=self.services,
            reachability=self.reachability,
        )
        self.tasks = self._node_tasks()
        self._ladder = ladder_of_this_host(settings, self.gates, [self.tasks.runner, self.lane, self.models])
        self._remote = RemoteVerbs(self.holds, self._running)
        self.heartbeat = self._heartbeat_loop()
        self.credential = renewal_of(settings, self.plane, self.clock, self.identity.node_name)

    def _model_servers(self, store: FileModelStore) -> ModelServerLoop:
        return ModelServerLoop(
            workers=self.workers,
            store=store,
            probe=HttpInferenceProbe(timeout_seconds=self._settings.model_probe_timeout_seconds),
            clock=self.clock,
            settings=self._settings,
            interpreter=self._interpreter,
            neighbours=Neighbours(
                changed=self._models_changed,
                memory=lambda: self.gates.verdict().level_of("memory"),
                in_use=lambda: bool(self.tasks.runner.runs()),
                traffic=self._traffic,
                room=self._model_room(),
                wanted=self._traffic.wanted,
            ),
        )

    def _fleet_services(self) -> FleetServices:
        return FleetServices(
            plane=self.plane,
            clock=self.clock,
            settings=self._settings,
            node_name=self.identity.node_name,
            has_metal=lambda: self._accelerator() == "metal",
            models=self.models,
            memory=JsonFile(self._settings.root.agent / "fleet-services.json"),
            saves_power=self.gates.on_battery,
        )

    def _speed_loop(self) -> SpeedLoop:
        limit = self._settings.model_speed_limit_seconds
        return SpeedLoop(
            servers=self.models.servers,
            probes={
                Quantity.SPEED: HttpSpeedProbe(limit_seconds=limit),
                Quantity.TOOLS: HttpToolsProbe(limit_seconds=limit),
                Quantity.LONG_SPEED: HttpLongSpeedProbe(
                    limit_seconds=limit, prompt_seconds=self._settings.model_speed_prompt_seconds
                ),
            },
            is_idle=self._is_idle,
            sustained=lambda: self._traffic.sustained,
            may_load=lambda: not self.live_holds(self.clock.now()) and not self.gates.on_battery(),
            memory=JsonFile(self._settings.root.agent / "speeds.json"),
            clock=self.clock,
            idle_seconds=self._settings.model_speed_idle_seconds,
        )

    def _model_room(self) -> ModelRoom:
        return ModelRoom(
            workers=self.workers,
            taken=JsonFile(self._settings.root.agent / "allocations.json"),
            memory=self._probe.memory,
            kept_bytes=marks_from(self._settings.gates, "the table [gates]").memory.reserve_bytes,
            reserved_bytes=self._promised_bytes,
            fraction=self._settings.model_memory_fraction,
            has_own_memory=lambda: self._accelerator() in OWN_MEMORY,
        )

    def _accelerator(self) -> str:
        wanted = self._settings.accelerator
        return self._probe.accelerator() if wanted == "auto" else wanted

    def _promised_bytes(self) -> float:
        return self.lane.promised_ram_bytes()

    def _proxy_url(self) -> str:
        return self.proxy.url()

    def _proxy_loop(self) -> ProxyLoop:
        root = self._settings.root
        return ProxyLoop(
            workers=self.workers,
            clock=self.clock,
            settings=self._settings,
            interpreter=self._interpreter,
            keys=lambda: keys_of(root, self._settings.reach),
            memory=JsonFile(root.agent / "proxy.json"),
            routes=lambda: routes_of_this_host(self._settings, self.models, self.services),
            version=__version__,
            changed=self._proxy_changed,
        )

    def _node_tasks(self) -> NodeTasks:
        return NodeTasks(
            plane=self.plane,
            clock=self.clock,
            settings=self._settings,
            node_name=self.identity.node_name,
            means=Means(self.workers, self.models, self._interpreter, JsonSpool(self._settings.root.outbox)),
            held=lambda: bool(self.live_holds(self.clock.now())),
            saves_power=self.gates.on_battery,
            changed=self.awake.decide,
        )

    def _heartbeat_loop(self) -> HeartbeatLoop:
        return HeartbeatLoop(
            plane=self.plane,
            clock=self.clock,
            identity=self.identity,
            memory=JsonFile(self._settings.root.node_memory),
            settings=self._settings,
            view=NodeView(
                holds=self.live_holds,
                capability=self.capability,
                told=lambda: (
                    *self.gates.conditions(),
                    *self.awake.told(),
                    *told_of_update(self._settings.root),
                    *self._remote.told(),
                    *self.credential.told(),
                ),
                # An agent that was started by hand would let a rollout wait until it halts.
                updatable=lambda: self.gates.updatable() if self.release.is_guarded else "false",
                models=self.speeds.told,
            ),
            accepted=self._beat_accepted,
            attempted=self._beat_attempted,
        )

    # What the parts tell each other.

    def live_holds(self, now: datetime) -> Holds:
        """Who keeps work away at this moment."""
        # The updater's pause is a file, as it must work when nobody answers; a look at it costs nothing.
        if self._settings.root.pause_file.exists():
            if not self.holds.has(Owner.UPDATE):
                self.holds.hold(Hold(Owner.UPDATE, "an update is about to be activated", now))
        else:
            self.holds.release(Owner.UPDATE)
        gate, held = self.gates.hold(), self.holds.live(now)
        return held if gate is None else held.with_hold(gate)

    def _holds_changed(self) -> None:
        self.heartbeat.beat_soon()
        self.tasks.look_soon()
        # Not at once: it may be the lane itself that asked who holds, in the middle of a decision.
        asyncio.get_running_loop().call_soon(self.lane.decide)

    def _judged(self) -> None:
        self.models.look(then=self._ladder.act)
        self.lane.decide()
        self.awake.decide()
        self.speeds.look_soon()

    def _slept(self) -> None:
        # Leases may have run out meanwhile, and streams have died without a word.
        self.tasks.doubt()
        self.models.doubt()
        self.services.doubt()
        self.heartbeat.beat_soon()

    def _is_busy(self) -> bool:
        return self._running() > 0

    def _running(self) -> int:
        return len(self.tasks.runner.runs()) + self.lane.running()

    async def _is_idle(self) -> bool:
        """Whether neither work of ours nor a client of the proxy would notice a short load."""
        traffic = await self._traffic()
        if traffic is None:
            # A proxy that cannot be asked may have clients all the same.
            return not self._settings.proxy and not self._is_busy()
        return not self._is_busy() and not any(one.running or one.waiting for one in traffic.values())

    async def shown_models(self) -> list[JsonObject]:
        """The model servers as people are shown them, with how fast they are."""
        traffic = None
        # Whoever asks how the host is does not wait for a proxy that hangs.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_ASIDE_SECONDS):
                traffic = await self._traffic()
        sustained = {model: one.tokens_per_second for model, one in (traffic or {}).items()}
        return [
            {
                **shown,
                "service": self.services.service_of(shown["name"]),
                **speed.shown(self.speeds.of(shown["name"])),
                "sustainedTokensPerSecond": sustained.get(shown["name"]),
            }
            for shown in self.models.snapshot()
        ]

    def _proxy_changed(self) -> None:
        self.registrations.look_soon()

    def _models_changed(self) -> None:
        # A model that answers, or no longer does, changes what the scheduler may send here.
        self.heartbeat.beat_soon()
        self.tasks.look_soon()
        self.proxy.routes_changed()
        self.speeds.look_soon()
        self.services.models_changed()
        self.registrations.look_soon()

    def _beat_accepted(self, node: FleetNode) -> None:
        self._settings.root.last_beat_file.touch()
        self.tasks.beat_accepted(node)
        self.services.beat_accepted()
        offset = timedelta(seconds=self.plane.clock_offset_seconds())
        self._remote.heard(node, self.clock.now() + offset)
        self._node_file.keep_if_possible(self.plane.held())
        self._updater.heard(node.status.update_request)

    def keep_node_file(self) -> None:
        """Tells the updater of the credential that is in use now."""
        self._node_file.keep(self.plane.held())

    def _beat_attempted(self) -> None:
        heartbeat = self.heartbeat
        self.release.beaten(
            ticking=self.tasks.loop.is_ticking(),
            attempted=heartbeat.attempts,
            accepted=heartbeat.acceptances,
            error=heartbeat.last_error_word,
        )
        if heartbeat.last_error_word:
            self._updater.missed()

    def capability(self) -> Capability:
        """What this node can do now."""
        memory = self._probe.memory()
        ready = self.models.ready_models()
        return capability_of(
            accelerator=self._accelerator(),
            total_bytes=memory.total_bytes,
            available_bytes=memory.available_bytes,
            ready_models=ready,
            context_tokens=self.models.context_tokens(),
            tokens_per_second=next(
                filter(None, (self.speeds.of(model).tokens_per_second for model in ready)), None
            ),
        )


def _identity(settings: Settings, probe: PsutilHostProbe) -> Identity:
    facts = read_host_facts(probe_timeout_seconds=settings.probe_timeout_seconds)
    recorded = establish_identity(JsonFile(settings.root.identity_file), facts)
    name = recorded.node_name if settings.node_name is None else checked_name(settings.node_name)
    return Identity(
        node_name=name,
        instance=recorded.instance,
        labels={**settings.node_labels, LABEL_AGENT: "true"},
        roles=settings.roles,
        version=__version__,
        os=probe.os(),
        arch=probe.arch(),
        updates_by_release=settings.updates_source == "agentrelease",
    )
