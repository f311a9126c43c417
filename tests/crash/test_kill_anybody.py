"""kill -9 of agent, guard, parent, updater and shims at random moments: afterwards all is right."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from journeyman.installation import install
from journeyman.model.agentic_task import TaskPhase
from journeyman_updater.adapters.minisign_keys import SecretKey
from tests.support.installable_agent import installable_agent
from tests.support.kills import HuntedHost
from tests.support.places import place_of
from tests.support.plane import FOREMAN, running_plane

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: the census reads /proc"),
]
AT_ONCE = 8
PERSONA = {"role": "planner", "temperature": "0", "maxOutputTokens": 1500, "tools": ["submit_result"]}
Aloud = Callable[[], AbstractContextManager[None]]


@contextmanager
def hunted(service: str, folder: Path, model: Path, chance: random.Random) -> Iterator[HuntedHost]:
    """A host with two model servers."""
    key, second = SecretKey.generate(), folder / "second.gguf"
    shutil.copy(model, second)
    first = installable_agent(folder / "first", key)
    with running_plane(folder) as plane, plane.client() as client, place_of(service, folder, key) as place:
        persona = {"metadata": {"name": "helper"}, "spec": PERSONA}
        client.post(f"{FOREMAN}/namespaces/default/agents", json=persona).raise_for_status()
        place.prepare(plane, model, second)
        install(place.request(plane, first), place.said.append)
        yield HuntedHost(place, client, folder, chance)


def hunt(service: str, folder: Path, model: Path, kills: int, aloud: Aloud, seed: int) -> None:
    """Kills so many, a few at a time, and lets the host heal in between."""
    with aloud():
        print(f"\nseed {seed}: {kills} kills under {service}", end="", flush=True)  # noqa: T201
    chance = random.Random(seed)
    with hunted(service, folder, model, chance) as host:
        host.heal()
        while host.killed.total() < kills:
            kill_some(host, chance.randint(1, AT_ONCE))
        phases = Counter(str(task.status.phase) for task in host.tasks())
        with aloud():
            print(f", {dict(host.killed)}; tasks {dict(phases)}", end="")  # noqa: T201


def kill_some(host: HuntedHost, count: int) -> None:
    """One round: whoever was not killed lives on, and only a worker that was may cost a task its end."""
    servers, lost = host.servers(), len(host.lost)
    task = f"task-{len(host.tasks())}"
    host.submit(task)
    for _ in range(count):
        host.kill_one()
    host.heal()
    assert servers - host.lost <= host.servers(), "a model server was ended for nothing"
    [ended] = [each.status.phase for each in host.tasks() if each.metadata.name == task]
    assert ended is TaskPhase.SUCCEEDED or len(host.lost) > lost


def test_twenty_kills(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After 20 kills each model has one server, each task has ended, and no process is left or double."""
    hunt("none", tmp_path, tiny_model, 20, capsys.disabled, seed=1)


@pytest.mark.full
@pytest.mark.parametrize("service", ["none", "runit"])
def test_a_hundred_kills(
    service: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the twenty, and by the hand of a real service manager too; CRASH_SEED repeats a run."""
    # Not called JOURNEYMAN_..., as the agent would take it for a setting that does not exist.
    seed = int(os.environ.get("CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    hunt(service, tmp_path, tiny_model, 100, capsys.disabled, seed)
