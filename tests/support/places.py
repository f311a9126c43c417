"""Hosts that `journeyman install` can install on: one for each service manager that can be had here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from journeyman.installation import Request
from journeyman.settings import load_settings
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.contract import StateRoot
from journeyman_updater.installation import Target, read_made, remove
from tests.support.agents import ROOMY
from tests.support.fake_launchctl import FakeLaunchctl
from tests.support.fake_launchd import FakeLaunchd
from tests.support.installed_nodes import UPDATER
from tests.support.plane import RunningPlane
from tests.support.runit import Runsvdir

SYSTEM_USER = "journeyman"


@dataclass
class Place:
    """Where an installation goes, and what it was told.

    Attributes:
        target: where.
        key: that releases are signed with.
        said: lines of progress.
    """

    target: Target
    key: SecretKey
    said: list[str] = field(default_factory=list)

    def request(self, plane: RunningPlane, artifact: Path | None, **changes: object) -> Request:
        flags = {"state_root": self.target.root.path, "server": plane.url, "token_file": plane.token_file}
        flags |= {"node_name": self.target.service, **changes}
        settings = load_settings(flags, {}).settings
        return Request(settings, self.target, artifact, (self.key.public.to_file(),), deadline_seconds=60)

    def prepare(self, plane: RunningPlane, *models: Path) -> None:
        """Settings that lie there before the installation: models to serve, and waits that suit a test.

        A heartbeat a second, and room for one long and one short answer at a time from each model.
        """
        root = self.target.root
        root.path.mkdir(parents=True)
        lines = {
            "server": plane.url,
            "token_file": "agent/token",
            "node_name": self.target.service,
            "models": [str(model) for model in models],
            "model_context_tokens": 2048,
            "model_parallel_slots": 2,
            "model_threads": 1,
            "model_backoff_max_seconds": 1,
            "heartbeat_interval_seconds": 1,
            "task_poll_seconds": 0.2,
            "outbox_retry_max_seconds": 1,
            "worker_stop_grace_seconds": 2,
        }
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())
        root.config_file.write_text(text + ROOMY)
        root.updater_settings.write_text(json.dumps(UPDATER))

    def pids(self) -> list[int]:
        """Processes that name the state root."""
        root = str(self.target.root.path)
        return [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if any(root in word for word in process.info["cmdline"] or [])
        ]


@contextmanager
def place_of(service: str, folder: Path, key: SecretKey) -> Iterator[Place]:
    """A service manager with nothing installed on it; at the end nothing is installed again.

    Args:
        service: `none`, `runit` (a runsvdir of our own), `launchd` (the fake one), and inside a container
            `systemd` and `systemd-user`.
        folder: for everything.
        key: that releases are signed with.
    """
    root = StateRoot(folder / "state root")
    end = _nothing
    if service == "runit":
        runsvdir = Runsvdir(folder / "runit")
        runsvdir.start()
        target, end = Target(root, "runit", folder=str(runsvdir.services)), runsvdir.stop
    elif service == "launchd":
        tool = FakeLaunchctl(launchd := FakeLaunchd(folder, domains={"system"}, scale=0.1))
        launchctl = str(tool.folder / "launchctl")
        target = Target(root, "launchd", folder=str(launchd.launch_daemons), launchctl=launchctl)
        end = tool.close
    else:
        target = Target(root, service, SYSTEM_USER if service == "systemd" else "")
    try:
        yield Place(target, key)
    finally:
        if root.path.exists() and (made := read_made(root)):
            remove(root, made, purge=True)
        end()


def _nothing() -> None:
    """Without a manager of our own there is none to end."""
