"""The life of the daemon of one host, from start to stop.  What it is made of is put together in `parts`.

    start     root lock, holds, outbox, workers adopted, control socket, first look at the host: READY
    run       heartbeat, tasks, outbox, model servers, each in a loop of its own
    stop      no new work, endings flushed, the parting beat; workers go on unless they are told to end

READY needs no network.  What follows from the first contact with the control plane comes after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine, MutableMapping
from datetime import timedelta
from typing import Any

import structlog

from journeyman import __version__
from journeyman.adapters.control_socket import ControlSocket
from journeyman.adapters.logs import configure_logs
from journeyman.adapters.root_lock import root_lock
from journeyman.adapters.sd_notify import SdNotify
from journeyman.core.agent_status import AgentStatus
from journeyman.core.holds import Hold, Owner
from journeyman.errors import UsageError
from journeyman.farewell import power_loop_of, power_of_this_host
from journeyman.parts import Parts
from journeyman.ports import JsonObject
from journeyman.settings import Settings
from journeyman_updater.contract import ExitCode, StateRoot
from journeyman_updater.contract.leftovers import PATTERN, sweep

log = structlog.get_logger(__name__)


def run_agent(
    settings: Settings, environ: MutableMapping[str, str], *, stop_with_stdin: bool = False
) -> ExitCode:
    """Runs the agent until it is told to stop.

    Args:
        settings: all settings.
        environ: the environment; NOTIFY_SOCKET is taken out of it.
        stop_with_stdin: stop, and end the workers too, when standard input ends: whoever holds its other
            end has gone then, however it went.

    Returns:
        STOPPED, or RESTART if the agent shall be started again.

    Raises:
        JourneymanError: it cannot run; nothing was left half-started.
    """
    configure_logs(level=settings.log_level, format_name=settings.log_format)
    with root_lock(settings.root):
        _sweep(settings.root)
        return asyncio.run(Agent(settings, environ).run(stop_with_stdin=stop_with_stdin))


class Agent:
    """One life of the daemon."""

    def __init__(self, settings: Settings, environ: MutableMapping[str, str]) -> None:
        self._settings = settings
        self._notify = SdNotify(environ)
        self._parts = Parts(settings, environ)
        self._started_at = self._parts.clock.now()
        self._stopping = asyncio.Event()
        self._exit_code = ExitCode.STOPPED
        self._end_workers = False

    async def run(self, *, stop_with_stdin: bool) -> ExitCode:
        """Starts, runs and stops."""
        self._take_signals(stop_with_stdin=stop_with_stdin)
        verbs = {
            "status": self._status,
            "stop": self._stop,
            "cordon": self._cordon,
            "uncordon": self._uncordon,
            "gate": self._parts.gates.force_verb,
            "lane-run": self._parts.lane.run_verb,
            "lane-wait": self._parts.lane.wait_verb,
            "lane-signal": self._parts.lane.signal_verb,
        }
        timeout = self._settings.request_timeout_seconds
        async with ControlSocket(self._settings.root, verbs, request_timeout_seconds=timeout):
            self._parts.services.load()
            self._parts.models.adopt()
            self._parts.proxy.adopt()
            self._parts.tasks.take_up()
            self._parts.lane.adopt()
            self._parts.capability()
            await self._parts.gates.sweep()
            self._parts.keep_node_file()
            self._parts.release.ready()
            self._notify.ready(f"node {self._parts.identity.node_name}")
            log.info("agent_ready", node_name=self._parts.identity.node_name, version=__version__)
            try:
                await self._live()
            finally:
                await self._parts.plane.aclose()
        self._parts.release.stopped()
        log.info("agent_stopped", exit_code=int(self._exit_code))
        return self._exit_code

    async def _live(self) -> None:
        """Runs the loops until a stop is asked for, or one of them cannot go on."""
        loops: list[Coroutine[Any, Any, None]] = [
            self._parts.heartbeat.run(),
            *self._parts.tasks.loops(),
            self._parts.gates.run(),
            self._parts.models.run(),
            *self._parts.services.loops(),
            self._parts.speeds.run(),
            self._parts.credential.run(),
            power_loop_of(self._parts, self._settings, power_of_this_host(self._settings)).run(),
            self._parts.proxy.run(),
            self._parts.registrations.run(),
            self._feed_watchdog(),
        ]
        running = [asyncio.create_task(loop) for loop in loops]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopping, *running}, return_when=asyncio.FIRST_COMPLETED)
            self._notify.stopping("the agent stops")
            # Claims and deliveries end first, so that nothing new begins while the rest is put away.
            heartbeat, *others = running
            await _end(others)
            broken = next((loop.exception() for loop in running if _failed(loop)), None)
            await self._put_away(speak=broken is None)
            await _end([heartbeat])
            if broken is not None:
                raise broken
        finally:
            await _end([stopping, *running])
            await self._parts.tasks.runner.let_go()
            await self._parts.lane.let_go()
            self._parts.awake.let_go()

    async def _put_away(self, *, speak: bool) -> None:
        """Hands back what will not run, ends workers if asked to, flushes, and says good-bye."""
        now = self._parts.clock.now()
        self._parts.holds.hold(Hold(Owner.SHUTDOWN, "the agent stops", now))
        if self._end_workers:
            for claim in self._parts.tasks.runner.claims():
                await self._parts.tasks.runner.cancel(claim)
            await self._parts.lane.stop_all()
            await self._parts.proxy.stop_all()
            await self._parts.models.stop_all()
        if not speak:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.parting_beat_timeout_seconds):
                await self._parts.tasks.look_afresh()
        await self._parts.tasks.outbox.flush(self._settings.parting_beat_timeout_seconds)
        words = [self._parts.heartbeat.part(work_goes_on=bool(self._parts.tasks.runner.claims()))]
        if not self._is_back_soon():
            words.append(self._parts.registrations.part())
        await asyncio.gather(*words)

    def _is_back_soon(self) -> bool:
        """Whether another agent follows at once, and finds the servers and the proxy as they are."""
        follows = self._exit_code is ExitCode.RESTART or self._settings.root.pause_file.exists()
        return follows and not self._end_workers

    def _take_signals(self, *, stop_with_stdin: bool) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        if stop_with_stdin:
            loop.add_reader(sys.stdin.fileno(), self._read_stdin)

    def _read_stdin(self) -> None:
        if os.read(sys.stdin.fileno(), 4096):
            return
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        self._end_workers = True
        self._stopping.set()

    async def _feed_watchdog(self) -> None:
        """Tells the service manager that we are alive, for as long as our loops are."""
        patience = self._notify.watchdog_seconds
        while patience is not None:
            if self._parts.tasks.loop.is_ticking():
                self._notify.alive()
            await self._parts.clock.sleep(patience / 3)
        await asyncio.Event().wait()

    # The verbs of the control socket.

    async def _status(self, _: JsonObject) -> JsonObject:
        return AgentStatus(
            node_name=self._parts.identity.node_name,
            version=__version__,
            pid=os.getpid(),
            started_at=self._started_at,
            server=self._parts.plane.access.server,
            holds=self._parts.live_holds(self._parts.clock.now()),
            last_beat_at=self._parts.heartbeat.last_accepted_at,
            last_beat_error=self._parts.heartbeat.last_error,
            runs=[(run.claim, run.record) for run in self._parts.tasks.runner.runs()],
            undelivered=len(self._parts.tasks.outbox.claims()),
            dead_letters=self._parts.tasks.outbox.dead_letters(),
            models=await self._parts.shown_models(),
            services=self._parts.services.snapshot(),
            proxy=self._parts.proxy.snapshot() | self._parts.reachability.shown(),
            registrations=self._parts.registrations.snapshot(),
            credential_error=self._parts.credential.problem,
        ).to_json()

    async def _stop(self, args: JsonObject) -> JsonObject:
        self._end_workers = bool(args.get("workers", False))
        self._exit_code = ExitCode.RESTART if args.get("restart") else ExitCode.STOPPED
        self._stopping.set()
        return {"stopping": True}

    async def _cordon(self, args: JsonObject) -> JsonObject:
        now = self._parts.clock.now()
        seconds = args.get("seconds")
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
            raise UsageError("the time of a cordon must be more than zero seconds")
        until = None if seconds is None else now + timedelta(seconds=seconds)
        self._parts.holds.hold(Hold(Owner.USER, str(args.get("reason") or "cordoned"), now, until))
        return await self._status({})

    async def _uncordon(self, _: JsonObject) -> JsonObject:
        self._parts.holds.release(Owner.USER)
        return await self._status({})


def _sweep(root: StateRoot) -> None:
    """Removes what agents that were killed have left; the folders of workers go as a whole."""
    ours = (root.agent, root.outbox, root.models, root.run)
    sweep(path for folder in ours for path in folder.rglob(PATTERN))


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
