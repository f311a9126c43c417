"""`journeyman up`: control plane, agent and model of one machine, in one process tree.

The plane and the agent are the same programs that a fleet runs, started here as children.  Each has a pipe
from us as its standard input and stops when that ends, so nothing outlives us however we go; on an orderly
stop the agent is asked to end its workers, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.model_store import FileModelStore
from journeyman.adapters.posix_workers import PosixWorkers
from journeyman.adapters.root_lock import root_lock
from journeyman.client import NODES, EmbeddedPlane, control_plane, embedded_plane, ensure_assistant
from journeyman.control import call
from journeyman.errors import ControlPlaneError, HostError, JourneymanError, ModelError
from journeyman.model.fleet_node import FleetNode, FleetNodePhase
from journeyman.model.model_file import DEFAULT_MODEL
from journeyman.settings import Settings
from journeyman_updater.contract import control_socket_of, write_durably

LOOK_AGAIN_SECONDS = 0.1
PLANE_START_SECONDS = 30.0
AGENT_START_SECONDS = 30.0
# A child that ends sooner than this after its start will not be any better the next time.
SHORTEST_LIFE_SECONDS = 5.0
STARTING = "starting"


class ChildError(JourneymanError):
    """A child ended; it said why, and its exit code is ours."""

    def __init__(self, name: str, code: int, said: list[str]) -> None:
        message, advice = _explanation(said)
        super().__init__(message or f"the {name} ended with exit code {code}", advice)
        self.exit_code = code or 1


@dataclass(frozen=True)
class UpOptions:
    """What the person at the terminal chose.

    Attributes:
        listen: HOST:PORT of the plane.
        models: names in the store, or paths, as the agent takes them.
        flags: what else they said on the command line, as the agent takes it.
        tell: told of each step, with the seconds that it took.
    """

    listen: str
    models: tuple[str, ...]
    flags: tuple[str, ...]
    tell: Callable[[str, float], None]


@dataclass
class Child:
    """One program of ours that runs as long as we do."""

    name: str
    arguments: tuple[str, ...]
    log_file: Path
    process: asyncio.subprocess.Process | None = None
    started_at: float = 0.0

    async def start(self) -> None:
        self.log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.log_file.open("wb") as output:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "journeyman",
                *self.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                # Ctrl-C is for us: it must not reach the children before we have said good-bye.
                start_new_session=True,
            )
        self.started_at = time.monotonic()

    @property
    def running(self) -> asyncio.subprocess.Process:
        assert self.process is not None, f"the {self.name} was not started"
        return self.process

    def failure(self) -> ChildError | None:
        """Why the child is gone, or None while it runs."""
        code = self.running.returncode
        if code is None:
            return None
        return ChildError(self.name, code, self.log_file.read_text(errors="replace").splitlines())

    async def stop(self, seconds: float) -> None:
        """Ends the child, by force if it takes longer than that."""
        if self.process is None or self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


@dataclass
class FleetOfOne:
    """A running plane, agent and model.

    Attributes:
        settings: of the agent and of our own client.
        plane_files: address, token and kubeconfig.
        seconds: how long each step of the start took.
    """

    settings: Settings
    options: UpOptions
    plane_files: EmbeddedPlane
    seconds: dict[str, float] = field(default_factory=dict)
    _children: list[Child] = field(default_factory=list)
    _owns_workers: bool = False

    async def start(self) -> None:
        """Starts all parts in turn.  Raises JourneymanError if one of them does not come up."""
        await self._step("control plane", self._start_plane())
        await self._step("agent", self._start_agent())
        await self._step("model", self._model_answers())

    async def keep(self) -> None:
        """Starts a child again that ended by itself.  Raises ChildError if that does not help."""
        await asyncio.gather(*(self._keep(child) for child in self._children))

    async def stop(self) -> None:
        """Ends everything, workers too, and leaves no process."""
        grace = self.settings.stop_grace_seconds
        for child in reversed(self._children):
            if child.name == "agent":
                with contextlib.suppress(JourneymanError):
                    await asyncio.to_thread(call, self.settings.root, "stop", workers=True)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(child.running.wait(), grace)
            await child.stop(grace)
        if not self._owns_workers:
            return
        # Only an agent that was killed leaves workers to us.
        workers = PosixWorkers(self.settings.root.workers)
        for record in workers.known():
            await workers.stop(record, grace_seconds=self.settings.worker_stop_grace_seconds)

    async def status(self) -> dict[str, Any]:
        """What the agent says of itself."""
        return await asyncio.to_thread(call, self.settings.root, "status")

    async def _start_plane(self) -> None:
        files = self.plane_files
        plane = Child(
            "control plane",
            ("plane", "--data-dir", str(files.folder), "--listen", self.options.listen, "--stop-with-stdin"),
            self.settings.root.run / "plane.log",
        )
        # A plane that was killed leaves its address behind, so it is the change that tells.
        before = _written_at(files.address_file)
        await self._start_child(plane)
        await self._until(
            plane, PLANE_START_SECONDS, lambda: _written_at(files.address_file) not in {None, before}
        )
        # So that a release which is installed on this root later trusts what this plane publishes.
        keys = self.settings.root.keys
        keys.mkdir(mode=0o755, exist_ok=True)
        write_durably(keys / "plane.pub", files.release_public_key.read_bytes(), mode=0o644)

    async def _start_agent(self) -> None:
        address = self.plane_files.address_file.read_text().strip()
        agent = Child(
            "agent",
            (
                "run",
                "--stop-with-stdin",
                "--state-root",
                str(self.settings.state_root),
                "--server",
                address,
                "--token-file",
                str(self.plane_files.token_file),
                "--updates-source",
                "agentrelease",
                # On one machine a look costs nothing, and somebody is waiting for the answer.
                "--task-poll-seconds",
                "0.5",
                *(part for model in self.options.models for part in ("--models", model)),
                *self.options.flags,
            ),
            self.settings.root.run / "agent.log",
        )
        before = _written_at(Path(control_socket_of(str(self.settings.root.path))))
        await self._start_child(agent)
        await self._until(
            agent,
            AGENT_START_SECONDS,
            lambda: _written_at(Path(control_socket_of(str(self.settings.root.path)))) not in {None, before},
        )
        self._owns_workers = True

    async def _model_answers(self) -> None:
        """Waits until the model has generated a token, the plane knows of it, and the proxy listens."""
        agent, began, told = self._children[-1], time.monotonic(), ""
        async with control_plane(self.settings) as plane:
            while True:
                if failure := agent.failure():
                    raise failure
                status = await self.status()
                _refuse_failed(status)
                held = "; ".join(hold["reason"] for hold in status["holds"])
                if held and held != told:
                    self.options.tell(f"waiting, as the node takes no work: {held}", time.monotonic() - began)
                told = held
                if status["proxy"].get("phase") != STARTING and await _is_ready(plane, status["nodeName"]):
                    await ensure_assistant(plane, self.settings.namespace, _first_ready(status))
                    return
                await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _start_child(self, child: Child) -> None:
        await child.start()
        self._children.append(child)

    async def _until(self, child: Child, seconds: float, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if failure := child.failure():
                raise failure
            if time.monotonic() > deadline:
                raise HostError(
                    f"the {child.name} did not come up within {seconds:g} s", f"see {child.log_file}"
                )
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _step(self, name: str, work: Any) -> None:
        started = time.monotonic()
        await work
        self.seconds[name] = round(time.monotonic() - started, 3)
        self.options.tell(name, self.seconds[name])

    async def _keep(self, child: Child) -> None:
        while True:
            await child.running.wait()
            lived = time.monotonic() - child.started_at
            failure = child.failure()
            if failure is not None and lived < SHORTEST_LIFE_SECONDS:
                raise failure
            self.options.tell(f"{child.name} ended and is started again", lived)
            await child.start()


@asynccontextmanager
async def fleet_of_one(settings: Settings, options: UpOptions) -> AsyncIterator[FleetOfOne]:
    """Runs everything while the block is entered; whatever happens in it, nothing is left behind."""
    files = embedded_plane(settings)
    # The plane that we start is ours, whatever else the settings name.
    own = settings.model_copy(
        update=dict.fromkeys(("server", "token_file", "ca_file", "kubeconfig", "context"))
    )
    fleet = FleetOfOne(own, options, files)
    with root_lock(settings.root, holder="up"):
        try:
            await fleet.start()
            yield fleet
        finally:
            await fleet.stop()


def prepare_models(settings: Settings, path: Path | None, tell: Callable[[str], None]) -> tuple[str, ...]:
    """Gets the model that is to be served, and returns how the agent is told of it.

    Args:
        settings: where the store is, and which models the user configured.
        path: a GGUF file of the user, or None for the configured models, or else the small built-in one.
        tell: told of each stage in one line.

    Raises:
        ModelError: it is missing or damaged.
        HostError: it could not be fetched or kept.
    """
    usual = () if settings.inference else (DEFAULT_MODEL,)
    wanted = settings.models or usual if path is None else (str(path.absolute()),)
    store = FileModelStore.of(settings, os.environ)
    for model in wanted:
        store.obtain(model, tell)
    return wanted


def _refuse_failed(status: dict[str, Any]) -> None:
    """Raises ModelError: none of the models will ever answer."""
    models = status["models"]
    if models and all(model["phase"] == "failed" for model in models):
        raise ModelError(
            f"model {models[0]['name']} cannot be served: {models[0]['reason']}",
            "name another one with --model PATH",
        )


def _first_ready(status: dict[str, Any]) -> str:
    """The preferred one of the models that answer; the preferred one of all where none says so yet."""
    models = status["models"]
    return str(next((each["name"] for each in models if each["phase"] == "ready"), models[0]["name"]))


def _written_at(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


async def _is_ready(plane: HttpControlPlane, node_name: str) -> bool:
    try:
        node = FleetNode.from_wire(await plane.get(NODES.named(node_name)))
    except ControlPlaneError:
        return False
    return node.status.phase is FleetNodePhase.READY and bool(node.status.capability.installed_models)


def _explanation(said: list[str]) -> tuple[str, str]:
    """The one line that a child ended with, and its advice."""
    for number in range(len(said) - 1, -1, -1):
        if said[number].startswith("journeyman: "):
            advice = said[number + 1].strip() if said[number + 1 : number + 2] else ""
            return said[number].removeprefix("journeyman: "), advice
    return "", ""
