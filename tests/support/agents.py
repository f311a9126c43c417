"""Real agents for tests: `journeyman run` as a process that can be killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from journeyman.control import call
from journeyman.errors import HostError
from journeyman_updater.contract import StateRoot, WorkerRecord
from tests.support.waiting import eventually

START_SECONDS = 30.0
STOP_SECONDS = 30.0
# A second where the product takes half a minute, so that a test need not wait.
FAST = {
    "JOURNEYMAN_HEARTBEAT_INTERVAL_SECONDS": "1",
    "JOURNEYMAN_HEARTBEAT_TIMEOUT_SECONDS": "4",
    "JOURNEYMAN_TASK_POLL_SECONDS": "0.2",
    "JOURNEYMAN_OUTBOX_RETRY_FIRST_SECONDS": "0.2",
    "JOURNEYMAN_OUTBOX_RETRY_MAX_SECONDS": "1",
    "JOURNEYMAN_WORKER_STOP_GRACE_SECONDS": "2",
    "JOURNEYMAN_STOP_GRACE_SECONDS": "10",
    "JOURNEYMAN_PARTING_BEAT_TIMEOUT_SECONDS": "2",
    # Tests count the tokens of a server, so nothing is measured where a test does not ask for it.
    "JOURNEYMAN_MODEL_SPEED_IDLE_SECONDS": "3600",
}


# What the machine that runs the tests has to spare is not what they are about.
ROOMY = """
[gates.disk]
reserve_percent = 0
reserve_min_bytes = 0
open_extra_percent = 0
open_extra_min_bytes = 0
kill_free_bytes = 0
"""


def roomy(root: Path) -> Path:
    """Makes a state root whose gates do not mind a full disk."""
    root.mkdir(parents=True, exist_ok=True)
    config = root / "config.toml"
    if not config.exists():
        config.write_text(ROOMY)
    return root


@dataclass
class AgentProcess:
    """One agent on a state root of its own.

    Attributes:
        root: the state root.
        server: URL of the plane; empty for an agent that has joined, and knows all this.
        token_file: the file with its token.
        models: as `--models` takes them.
        name: the node name.
        options: further settings by name.
        environment: further variables.
    """

    root: StateRoot
    server: str
    token_file: Path
    name: str
    models: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def log_file(self) -> Path:
        return self.root.path / "agent.log"

    def start(self) -> AgentProcess:
        """Starts it and returns once it is READY."""
        roomy(self.root.path)
        command = [sys.executable, "-m", "journeyman", "run", "--state-root", str(self.root.path)]
        if self.server:
            command += ["--server", self.server, "--token-file", str(self.token_file)]
            command += ["--node-name", self.name]
        command += [part for model in self.models for part in ("--models", model)]
        named = {f"JOURNEYMAN_{key.upper()}": value for key, value in self.options.items()}
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **FAST, **named, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._answers, within_seconds=START_SECONDS)
        return self

    def status(self) -> dict[str, Any]:
        return call(self.root, "status")

    def until_serving(self) -> AgentProcess:
        """Returns once a model has generated a token here."""
        eventually(self._serves, within_seconds=START_SECONDS)
        return self

    def until_admitting(self) -> AgentProcess:
        """Returns once its gates have had their first fresh readings and are open."""
        eventually(self._admits, within_seconds=START_SECONDS)
        return self

    def remembers(self, label: str) -> bool:
        """Whether the agent has put that foreign label down for the day when its node is gone."""
        path = self.root.agent / "node-memory.json"
        return path.exists() and label in path.read_text()

    def kill(self) -> None:
        """SIGKILL; its workers go on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    def worker_records(self) -> list[WorkerRecord]:
        """The workers on disk."""
        found = []
        for path in self.root.workers.glob("*/record.json"):
            try:
                found.append(WorkerRecord.from_json(path.read_bytes()))
            except FileNotFoundError:
                continue  # It ended between the look and the read.
        return found

    def kill_workers(self) -> None:
        """SIGKILL to each shim and each worker, as if the host had lost power; returns once all have gone."""
        processes = [each for record in self.worker_records() for each in (record.shim, record.worker)]
        for process in processes:
            if process.is_running():
                os.kill(process.pid, signal.SIGKILL)
        eventually(lambda: not any(process.is_running() for process in processes))

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def _answers(self) -> bool:
        assert self.process is not None
        code = self.process.poll()
        assert code is None, f"the agent ended with {code}:\n{self.log()}"
        try:
            self.status()
        except HostError:
            return False
        return True

    def _admits(self) -> bool:
        report = self.root.run / "gates.json"
        return report.exists() and bool(json.loads(report.read_bytes())["admits"])

    def _serves(self) -> bool:
        models = self.status()["models"]
        assert not any(model["phase"] == "failed" for model in models), models
        return any(model["phase"] == "ready" for model in models)


@contextmanager
def agent(folder: Path, server: str, token_file: Path, **given: Any) -> Iterator[AgentProcess]:
    """An agent that has started; at the end it and all its workers are gone.

    Args:
        folder: where its state root is made.
        server: URL of the plane.
        token_file: the file with its token.
        given: further fields of AgentProcess.
    """
    name = given.pop("name", "node-a")
    running = AgentProcess(StateRoot(folder / name), server, token_file, name, **given)
    try:
        yield running.start()
    finally:
        if running.process is not None and running.process.poll() is None:
            running.kill()
        running.kill_workers()
