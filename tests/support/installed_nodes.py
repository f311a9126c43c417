"""Hosts without a service manager: a state root, its parent, and a real agent of a real release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from journeyman_updater.contract import ProcessIdentity, StateRoot, identity_of
from journeyman_updater.model.journal import Record
from journeyman_updater.model.state import StateDocument
from journeyman_updater.run import open_updater
from tests.support.agents import FAST, ROOMY, AgentProcess
from tests.support.waiting import eventually

COMMAND_SECONDS = 120
STOP_SECONDS = 30
# As short as a loaded machine allows.
UPDATER = {
    "soak_seconds": 1,
    "beat_seconds": 20,
    "poll_seconds": 0.1,
    "drain_seconds": 5,
    "stop_seconds": 20,
    "start_seconds": 60,
    "ready_margin_seconds": 10,
    "patience_seconds": 15,
}


def journeyman(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the command of the checkout; bounded."""
    command = [sys.executable, "-m", "journeyman", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS)


class InstalledNode(AgentProcess):
    """An agent that the guard of its own state root starts, from the release that is installed there."""

    def install(self, artifact: Path, key: Path) -> None:
        """Lays the first release down, as a person would."""
        self.root.path.mkdir(parents=True)
        models = json.dumps([str(model) for model in self.models])
        self.root.config_file.write_text(
            f'server = "{self.server}"\ntoken_file = "{self.token_file}"\nnode_name = "{self.name}"\n'
            f'updates_source = "agentrelease"\nmodels = {models}\nmodel_context_tokens = 2048\n{ROOMY}'
        )
        self.root.updater_settings.write_text(json.dumps(UPDATER))
        done = journeyman("update", "bootstrap", artifact, "--key", key, "--state-root", self.root.path)
        assert done.returncode == 0, done.stderr

    def start(self) -> AgentProcess:
        """Starts the parent, and returns once the agent is READY."""
        launcher = ["sh", str(self.root.parent_launcher)]
        named = {f"JOURNEYMAN_{key.upper()}": value for key, value in self.options.items()}
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                launcher,
                env={**os.environ, **FAST, **named},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._answers, within_seconds=60)
        return self

    def agent(self) -> ProcessIdentity | None:
        """The agent that the parent keeps; None between two."""
        try:
            child = json.loads(self.root.guard_file.read_bytes())["child"]
        except (OSError, ValueError):
            return None
        return identity_of(child) if child else None

    def running_tree(self) -> str:
        """The folder below `versions/` that the agent's process imports from, by the kernel's word."""
        agent = self.agent()
        assert agent is not None
        variables = Path(f"/proc/{agent.pid}/environ").read_bytes().decode().split("\0")
        [path] = [each.partition("=")[2] for each in variables if each.startswith("PYTHONPATH=")]
        assert Path(path).is_relative_to(self.root.versions)
        return Path(path).relative_to(self.root.versions).parts[0]

    def state(self) -> StateDocument:
        return open_updater(self.root).document()

    def history(self) -> list[Record]:
        return open_updater(self.root).history()

    def end(self) -> None:
        """Stops parent, agent, and an updater at work; then the workers."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(STOP_SECONDS)
        # The updater may be at work, and outlives its parent; nobody else's command line names our root.
        for process in psutil.process_iter(["cmdline"]):
            if str(self.root.path) in (process.info["cmdline"] or []):
                process.kill()
        self.kill_workers()


@contextmanager
def installed_node(folder: Path, artifact: Path, key: Path, **given: Any) -> Iterator[InstalledNode]:
    """A node that has its first release and runs it.

    Args:
        folder: where its state root is made.
        artifact: the signed release.
        key: the public key to pin.
        given: fields of AgentProcess.
    """
    node = InstalledNode(root=StateRoot(folder / f"root of {given['name']}"), **given)
    node.install(artifact, key)
    try:
        node.start()
        yield node
    finally:
        node.end()
