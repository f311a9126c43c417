"""kill -9 of whatever belongs to an installed agent, and the census of what lives afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil

from journeyman.control import call
from journeyman.core.worker_specs import MODEL_SERVER, PROXY
from journeyman.errors import JourneymanError
from journeyman.model.agentic_task import AgenticTask
from journeyman_updater.adapters.service.none import ParentServiceManager
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import ProcessIdentity, WorkerRecord, identity_of
from journeyman_updater.errors import HostError, Reason
from journeyman_updater.installation import installer_for
from journeyman_updater.run import open_updater
from tests.support.installable_agent import installable_agent
from tests.support.places import Place
from tests.support.plane import FOREMAN
from tests.support.waiting import eventually

TASKS = f"{FOREMAN}/namespaces/default/agentictasks"
HEAL_SECONDS = 120.0
LONGEST_PAUSE_SECONDS = 0.6
# How long a new process of the manager's is the guard, more or less, before it becomes the agent.
GUARD_SECONDS = 0.15
# A killed updater takes the longest to heal, so it is rarer than the others.
ROLES = ("agent", "agent", "guard", "parent", "updater", "shim", "shim", "shim")


class HuntedHost:
    """An installed agent with model servers and tasks, whose processes are killed.

    Args:
        place: where it is installed.
        client: of the plane.
        folder: for releases.
        chance: decides who, and when.

    Attributes:
        killed: how many of each role.
        lost: the shims among them.
    """

    def __init__(self, place: Place, client: httpx.Client, folder: Path, chance: random.Random) -> None:
        self._place = place
        self._root = place.target.root
        self._client = client
        self._folder = folder
        self._chance = chance
        self._installer = installer_for(place.target, SystemClock())
        self._parent = ParentServiceManager(self._root.guard_file, SystemClock())
        self._updates: list[subprocess.Popen[bytes]] = []
        self._release: Path | None = None
        self._number = 0
        self.killed: Counter[str] = Counter()
        self.lost: set[ProcessIdentity] = set()

    def kill_one(self) -> None:
        """Waits for a random time, and kills one process of a random role, if there is one."""
        threading.Event().wait(self._chance.uniform(0, LONGEST_PAUSE_SECONDS))
        role = self._chance.choice(ROLES)
        victim = getattr(self, f"_find_{role}")()
        if victim is not None and victim.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
                self.killed[role] += 1
                self.lost |= {victim} if role == "shim" else set()

    def _find_agent(self) -> ProcessIdentity | None:
        return self._installer.running()

    def _find_guard(self) -> ProcessIdentity | None:
        """What the manager starts in the place of an agent that was just killed, in its first moments."""
        old = self._installer.running()
        if old is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(old.pid, signal.SIGKILL)
                self.killed["agent"] += 1
        self._nudge()
        with contextlib.suppress(AssertionError):
            eventually(lambda: self._installer.running() not in {old, None}, within_seconds=3)
        threading.Event().wait(self._chance.uniform(0, GUARD_SECONDS))
        new = self._installer.running()
        return None if new == old else new

    def _find_parent(self) -> ProcessIdentity | None:
        return self._parent.parent()

    def _find_updater(self) -> ProcessIdentity | None:
        """One that has begun an update a moment ago."""
        self._number += 1
        made = self._folder / f"release {self._number}"
        version = f"99.0.{self._number}"
        self._release = installable_agent(made, self._place.key, version=version, sequence=1 + self._number)
        command = [sys.executable, "-m", "journeyman", "update", "apply", str(self._release)]
        command += ["--state-root", str(self._root.path)]
        self._updates.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        threading.Event().wait(self._chance.uniform(0.5, 4))
        return identity_of(self._updates[-1].pid)

    def _find_shim(self) -> ProcessIdentity | None:
        records = self.records()
        return self._chance.choice(records).shim if records else None

    def heal(self) -> None:
        """What a boot or a person does, and no more; returns once the right processes live, and no others.

        Without a service manager nobody starts the parent again, and it may wait for a minute.
        """
        for update in self._updates:
            update.wait(HEAL_SECONDS)
        self._updates.clear()
        release = self._release
        if release is not None:
            eventually(lambda: self._is_asked_again(release), within_seconds=HEAL_SECONDS, every_seconds=0.2)
            self._release = None
        eventually(self._is_well, within_seconds=HEAL_SECONDS, every_seconds=0.2)

    def _is_asked_again(self, release: Path) -> bool:
        """Asks for the update again; a parent that was just started may be finishing it itself."""
        self._nudge()
        try:
            open_updater(self._root).apply_file(release)
        except HostError as error:
            if error.reason is not Reason.SELF_UPDATE_UNAVAILABLE:
                raise
            return False
        return True

    def _is_well(self) -> bool:
        self._nudge()
        return not self.problems()

    def _nudge(self) -> None:
        if self._place.target.service != "none":
            return
        parent = self._parent.parent()
        if parent is None:
            self._installer.start()
        elif self._parent.running() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(parent.pid, signal.SIGUSR1)

    def submit(self, name: str) -> None:
        """One task that takes a second or two."""
        spec = {"kind": "freeform", "agentRef": {"name": "helper"}, "payload": {"prompt": "Go on."}}
        task = {"metadata": {"name": name}, "spec": spec}
        self._client.post(TASKS, json=task).raise_for_status()

    def tasks(self) -> list[AgenticTask]:
        items = self._client.get(TASKS).raise_for_status().json()["items"]
        return [AgenticTask.from_wire(item) for item in items]

    def records(self) -> list[WorkerRecord]:
        """The workers on disk."""
        found = []
        for path in sorted(self._root.workers.glob("[!.]*/record.json")):
            with contextlib.suppress(FileNotFoundError):
                found.append(WorkerRecord.from_json(path.read_bytes()))
        return found

    def servers(self) -> set[ProcessIdentity]:
        """The shims of the model servers."""
        return {record.shim for record in self.records() if record.kind == MODEL_SERVER}

    def problems(self) -> list[str]:
        """What is not as it has to be: one line each, and none once all has healed."""
        try:
            status = call(self._root, "status")
        except JourneymanError as error:
            return [error.message]
        return [*self._of_tasks(), *self._of_models(status), *self._of_release(), *self._of_processes(status)]

    def _of_tasks(self) -> list[str]:
        return [
            f"{task.metadata.name} is {task.status.phase}" for task in self.tasks() if not task.is_terminal
        ]

    def _of_models(self, status: dict[str, Any]) -> list[str]:
        records = self.records()
        served = sorted(record.worker_id for record in records if record.kind != PROXY)
        named = sorted(model["worker"] for model in status["models"])
        ill = [
            f"{model['name']} is {model['phase']}" for model in status["models"] if model["phase"] != "ready"
        ]
        if served != named:
            ill.append(f"workers {served}, and the agent speaks of {named}")
        proxies, phase = len(records) - len(served), status["proxy"]["phase"]
        return ill if (proxies, phase) == (1, "ready") else [*ill, f"{proxies} proxies, {phase}"]

    def _of_release(self) -> list[str]:
        known, agent = open_updater(self._root).document().status, self._installer.running()
        if known.trial is not None or known.active is None:
            return ["a trial is open"]
        variables = _environment_of(agent)
        right = f"JOURNEYMAN_RELEASE_SHA={known.active.sha256}" in variables
        return [] if right else [f"the agent is not {known.active.version.spelled}"]

    def _of_processes(self, status: dict[str, Any]) -> list[str]:
        agent, parent = self._installer.running(), self._parent.parent()
        if agent is None or agent.pid != status["pid"]:
            return [f"the manager keeps {agent}, and {status['pid']} answers"]
        right = {agent.pid} | ({parent.pid} if parent else set())
        right |= {process.pid for record in self.records() for process in (record.shim, record.worker)}
        there = self._census()
        wrong = [f"too many: {pid} {there[pid]}" for pid in there.keys() - right]
        return wrong + [f"gone: {pid}" for pid in right - there.keys()]

    def _census(self) -> dict[int, str]:
        """All processes that were started for this root: by their command line, or where they work."""
        root, found = str(self._root.path), {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                is_ours = any(root in word for word in words) or process.cwd().startswith(root)
                if is_ours and process.status() != psutil.STATUS_ZOMBIE and words[:1] != ["svlogd"]:
                    found[process.pid] = " ".join(words)
        return found


def _environment_of(process: ProcessIdentity | None) -> list[str]:
    if process is None:
        return []
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes().decode().split("\0")
    except OSError:
        return []
