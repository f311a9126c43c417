"""A task that the gates interrupt goes back to the fleet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.gates.ladder import Action, Do
from journeyman.model.resources import AGENTIC_TASKS
from journeyman.ports import Collection
from journeyman.settings import Settings
from tests.support.clock import FakeClock
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.fake_workers import FakeWorkers
from tests.support.node_tasks import node_tasks

TASKS = Collection(AGENTIC_TASKS.group, AGENTIC_TASKS.version, AGENTIC_TASKS.plural, "default")
TASK = {"metadata": {"name": "a"}, "spec": {"kind": "freeform", "payload": {"prompt": "Say hello."}}}


@pytest.mark.parametrize("do", [Do.TERMINATE, Do.KILL])
def test_a_task_that_is_shed_becomes_pending_and_its_worker_is_not_run_again(tmp_path: Path, do: Do) -> None:
    """No ending is written, no attempt counted; while the node is held, somebody else may take it."""
    plane, workers, clock = FakeControlPlane(), FakeWorkers(), FakeClock()
    held = [False]
    tasks = node_tasks(plane, workers, clock, Settings(state_root=tmp_path), held=lambda: held[0])
    runner = tasks.runner

    async def status() -> dict[str, Any]:
        found: dict[str, Any] = (await plane.get(TASKS.named("a")))["status"]
        return found

    async def scenario() -> None:
        await plane.create(TASKS, TASK)
        ours = {"status": {"phase": "Scheduled", "assignedNode": "me"}}
        await plane.patch(TASKS.named("a"), ours, subresource="status")
        await tasks.look_afresh()
        (job,) = runner.work()
        assert (job.suspendable, job.retriable) == (False, True)
        held[0] = True
        runner.carry_out(Action(do, job.job_id, "memory", "AvailBelow3", 5.0))
        await clock.settle()
        assert runner.work() == []
        assert (await status())["phase"] == "Running"
        await tasks.look_afresh()
        found = await status()
        assert (found["phase"], found.get("assignedNode")) == ("Pending", None)
        assert "has no worker any more" in found["conditions"][0]["message"]
        assert (len(workers.started), tasks.outbox.claims(), workers.known()) == (1, [], [])

    asyncio.run(asyncio.wait_for(scenario(), 10))
