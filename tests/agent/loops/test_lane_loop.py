"""The host lane in memory, on a fake day."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.failure import Kills, Surroundings
from journeyman.core.gates.admission import Room
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.ladder import Action, Do
from journeyman.core.gates.machine import Phase, Reason
from journeyman.core.gates.marks import AdmissionMarks
from journeyman.core.gates.rules import Level
from journeyman.core.gates.verdict import GateVerdict, Verdict
from journeyman.core.holds import Hold, Holds, Owner
from journeyman.core.lane import GRANT_LABEL
from journeyman.core.lane_queue import Offer
from journeyman.errors import HostError, UsageError
from journeyman.loops.lane_loop import LaneLoop
from journeyman.ports import Usage
from journeyman.settings import Settings
from tests.support.clock import START, FakeClock
from tests.support.fake_workers import FakeWorkers

GB = 1_000_000_000
OPEN = Verdict((GateVerdict("memory", Phase.OPEN, Level.OPEN, 0.0, ()),))
SHUT = Verdict((
    GateVerdict("power", Phase.CLOSED, Level.HOLD, 0.0, (Reason("OnBattery", ""),),
                retry_after_seconds=240, until="plugged-in", dwell_seconds=300),
))  # fmt: skip


def request(name: str, *, ram: int = 0, lead: str = "me", **given: Any) -> dict[str, Any]:
    return {
        "id": f"lane-{name}", "argv": ["true"], "cwd": "/", "env": {"A": "1"}, "copies": ["/o", "/e"],
        "lead": lead, "need": {"ramBytes": ram, "cpus": 1}, **given,
    }  # fmt: skip


@dataclass
class ScriptedWitness:
    """Implements `Witness`: the host is as the test says."""

    host: Surroundings = field(default_factory=lambda: Surroundings(HostClass.LINUX_SERVER))
    oomd_said: str = ""

    def surroundings(self) -> Surroundings:
        return self.host

    def oomd(self, since: str) -> str:
        assert since
        return self.oomd_said


@dataclass
class Bench:
    root: Path
    witness: ScriptedWitness = field(default_factory=ScriptedWitness)
    workers: FakeWorkers = field(default_factory=FakeWorkers)
    clock: FakeClock = field(default_factory=FakeClock)
    verdict: Verdict = OPEN
    holds: Holds = field(default_factory=Holds)
    room: Room = field(default_factory=lambda: Room(10 * GB, 10 * GB, None, 8, 2, 16 * GB))

    def lane(self) -> LaneLoop:
        settings = Settings(state_root=self.root, lane_receipts_kept=2)
        return LaneLoop(
            workers=self.workers,
            clock=self.clock,
            settings=settings,
            offer=lambda: Offer(self.room, self.verdict, self.holds),
            marks=AdmissionMarks(),
            witness=self.witness,
        )

    async def started(self, lane: LaneLoop, name: str, **given: Any) -> str:
        """Asks for a job, and returns its id once it runs."""
        asked = request(name, **given)
        first = await lane.run_verb(asked)
        state = await lane.run_verb({**asked, "seen": first["state"]})
        assert state == {"state": "running"}
        return f"lane-{name}"

    async def receipt(self, lane: LaneLoop, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await lane.wait_verb({"id": job_id}))["receipt"]
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 10))


def test_a_job_runs_as_its_caller_would_and_its_grant_is_in_its_record(bench: Bench) -> None:
    """The spec has the caller's environment and is private; the record has what the next agent needs."""

    async def scenario() -> None:
        lane = bench.lane()
        job = await bench.started(lane, "a", ram=GB, timeoutSeconds=60)
        spec = bench.workers.spec_of(job)
        assert (spec.argv, spec.cwd, spec.env, spec.private) == (("true",), "/", {"A": "1"}, True)
        assert '"ram_bytes": 1000000000' in spec.labels[GRANT_LABEL]
        bench.workers.finish(job, code=3)
        receipt = await bench.receipt(lane, job)
        assert (receipt["exitCode"], receipt["why"]) == (3, "ExitNonZero")
        await lane.let_go()

    run(scenario())


def test_a_closed_gate_and_a_hold_say_why_and_until_when(bench: Bench) -> None:
    """The first answer comes at once; the next one when there is something new, or a poll's time is over."""

    async def scenario() -> None:
        lane = bench.lane()
        bench.verdict = SHUT
        first = await lane.run_verb(request("a"))
        assert first["line"].startswith(
            "waits in place 1 of 1: GateClosed: power: OnBattery, until plugged-in"
        )
        assert first["retryAfterSeconds"] == 240
        poll = asyncio.create_task(lane.run_verb(request("a", seen=first["line"])))
        await bench.clock.run_for(4.9)
        assert not poll.done()
        await bench.clock.run_for(0.2)
        assert (await poll)["line"] == first["line"]
        bench.verdict, bench.holds = OPEN, Holds((Hold(Owner.UPDATE, "an update", START),))
        second = await lane.run_verb(request("a", seen=first["line"]))
        assert second["line"] == "waits in place 1 of 1: Held: update: an update, until lifted"

    run(scenario())


def test_what_is_granted_counts_at_once_and_the_rest_follow_when_it_ends(bench: Bench) -> None:
    """Two of 4 GB fit into 10; the third waits for room and starts as the first one ends."""

    async def scenario() -> None:
        lane = bench.lane()
        bench.room = Room(10 * GB, 10 * GB, None, 8, 8, 16 * GB)
        jobs = [await bench.started(lane, name, ram=4 * GB) for name in "ab"]
        told = await lane.run_verb(request("c", ram=4 * GB))
        assert (
            told["line"] == "waits in place 1 of 1: NoRam: ram: 4 GB wanted, 2 GB left, until there is room"
        )
        poll = asyncio.create_task(lane.run_verb(request("c", ram=4 * GB, seen=told["line"])))
        bench.workers.finish(jobs[0])
        assert (await poll)["state"] in {"starting", "running"}
        await bench.started(lane, "c", ram=4 * GB)
        await lane.let_go()

    run(scenario())


def test_whoever_asks_no_more_has_left_the_queue(bench: Bench) -> None:
    """A client that was killed is forgotten after the patience of a request, and never run for."""

    async def scenario() -> None:
        lane = bench.lane()
        bench.verdict = SHUT
        await lane.run_verb(request("a"))
        bench.clock.move(11)
        bench.verdict = OPEN
        lane.decide()
        await bench.clock.settle()
        assert bench.workers.started == []
        with pytest.raises(UsageError, match="no job lane-a"):
            await lane.wait_verb({"id": "lane-a"})

    run(scenario())


def test_the_time_in_which_a_job_stood_still_is_not_its_own(bench: Bench) -> None:
    """A job of 60 s that was suspended for 100 s is ended 160 s after its start, as Timeout."""

    async def scenario() -> None:
        lane = bench.lane()
        job = await bench.started(lane, "a", timeoutSeconds=60)
        lane.carry_out(Action(Do.SUSPEND, job, "thermal", "Hot"))
        await bench.clock.run_for(100)
        lane.carry_out(Action(Do.RESUME, job))
        assert [number for _, number in bench.workers.signals] == [signal.SIGSTOP, signal.SIGCONT]
        await bench.clock.run_for(59)
        assert bench.workers.running(bench.workers.known()[0])
        await bench.clock.run_for(61)
        receipt = await bench.receipt(lane, job)
        assert (receipt["why"], receipt["signal"]) == ("Timeout", signal.SIGTERM)
        assert [step["do"] for step in receipt["steps"]] == ["suspend", "resume"]

    run(scenario())


def test_the_next_agent_adopts_jobs_reservations_and_receipts(bench: Bench) -> None:
    """It lets what stood still go on, counts what was granted, and makes the receipt that was missing."""

    async def scenario() -> None:
        before = bench.lane()
        jobs = [await bench.started(before, name, ram=4 * GB) for name in "ab"]
        before.carry_out(Action(Do.SUSPEND, jobs[0], "thermal", "Hot"))
        await before.let_go()
        bench.workers.kill_shim(jobs[1])
        after = bench.lane()
        after.adopt()
        assert bench.workers.signals[-2:] == [(jobs[0], signal.SIGCONT)] * 2
        lost = await bench.receipt(after, jobs[1])
        assert (lost["uncertain"], lost["why"], lost["exitCode"]) == (True, "Unknown", None)
        assert (await after.run_verb(request("a", ram=4 * GB)))["state"] == "running"
        told = await after.run_verb(request("c", ram=8 * GB))
        assert told["code"] == "NoRam"
        assert bench.workers.started == jobs
        await after.let_go()

    run(scenario())


def test_old_receipts_make_room(bench: Bench) -> None:
    """Only so many ended jobs are kept, with their folders."""

    async def scenario() -> None:
        lane = bench.lane()
        for name in "abcd":
            job = await bench.started(lane, name)
            bench.workers.finish(job)
            await bench.receipt(lane, job)
            await bench.clock.settle()
        assert [record.worker_id for record in bench.workers.known()] == ["lane-c", "lane-d"]
        with pytest.raises(UsageError, match="no job lane-a"):
            await lane.wait_verb({"id": "lane-a"})

    run(scenario())


def test_a_kill_of_the_ladder_is_in_the_receipt_and_use_is_seen(bench: Bench) -> None:
    """The job shows what it uses, and its end names the gate."""

    async def scenario() -> None:
        lane = bench.lane()
        job = await bench.started(lane, "a", ram=GB)
        bench.workers.uses[job] = Usage(3 * GB, 5)
        (shown,) = lane.work()
        assert (shown.ram_bytes, shown.disk_bytes, shown.retriable) == (3 * GB, 5, False)
        lane.carry_out(Action(Do.KILL, job, "memory", "AvailBelow3"))
        receipt = await bench.receipt(lane, job)
        assert (receipt["why"], receipt["signal"]) == ("GateStopped:memory", signal.SIGKILL)
        assert receipt["peakMemoryBytes"] == 3 * GB

    run(scenario())


def test_stopping_all_ends_every_job(bench: Bench) -> None:
    """As `journeyman up` does at Ctrl-C."""

    async def scenario() -> None:
        lane = bench.lane()
        jobs = [await bench.started(lane, name) for name in "ab"]
        await lane.stop_all()
        assert bench.workers.stopped == jobs
        assert lane.running() == 0

    run(scenario())


def test_a_bad_request_is_refused_and_leaves_nothing(bench: Bench) -> None:
    """A wrong type, no command, or an id that could lead out of the folder; and more than the host has."""

    async def scenario() -> None:
        lane = bench.lane()
        wrongs: list[dict[str, Any]] = [
            {"argv": []},
            {"id": "../x"},
            {"env": 3},
            {"copies": ["/o"]},
            {"need": {"cpus": "nan"}},
        ]
        for wrong in wrongs:
            with pytest.raises(UsageError):
                await lane.run_verb({**request("a"), **wrong})
        with pytest.raises(HostError, match="17 GB wanted, this host has 16 GB"):
            await lane.run_verb(request("a", ram=17 * GB))
        with pytest.raises(UsageError, match="no signal"):
            await lane.signal_verb({"id": "lane-a", "signal": "STOP"})
        assert bench.workers.started == []

    run(scenario())


def test_a_kill_by_somebody_else_is_told_with_its_evidence(bench: Bench) -> None:
    """What the host was like before and after is in the receipt; oomd is asked last of all."""

    async def scenario() -> None:
        lane = bench.lane()
        job_id = await bench.started(lane, "a")
        bench.workers.finish(job_id, code=None, signal=signal.SIGKILL)
        bench.witness.oomd_said = "Killed /dev.journeyman.agent.service due to memory pressure"
        receipt = await bench.receipt(lane, job_id)
        assert (receipt["why"], receipt["confidence"]) == ("OOMHost", "high")
        assert receipt["evidence"] == [bench.witness.oomd_said]
        job_id = await bench.started(lane, "b")
        bench.witness.host = replace(bench.witness.host, kills=Kills(host=1))
        bench.workers.words[job_id] = "write error: No space left on device"
        bench.workers.finish(job_id, code=1)
        receipt = await bench.receipt(lane, job_id)
        assert (receipt["why"], receipt["evidence"]) == (
            "DiskFull", ["its stderr says 'No space left on device'"],
        )  # fmt: skip

    run(scenario())
