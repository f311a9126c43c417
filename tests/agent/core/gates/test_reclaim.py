"""A clean-up of the disk, from its promise to what came of it."""

from __future__ import annotations

from journeyman.core.gates.conditions import conditions
from journeyman.core.gates.engine import Engine, judged, started, sweep
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.ladder import Action, Do, Job, next_actions
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.reclaim import PROMISED
from journeyman.core.gates.rules import Level
from journeyman.core.gates.sleep import Clocks
from journeyman.core.gates.specs import gate_specs
from journeyman.core.gates.verdict import Verdict
from journeyman.model.readings import Quality
from tests.support.gates import NOON, reading

MARKS = Marks()
GB = 1_000_000_000
SPECS = [spec for spec in gate_specs(HostClass.LINUX_SERVER, MARKS, ["a", "b"]) if spec.name == "disk"]
JOB = Job("writer", 0, disk_bytes=8 * GB)


class Disk:
    """A disk of 300 GB, the clock in the test's hand; `b` lies on another one with room enough."""

    def __init__(self) -> None:
        self.now = 0.0
        self.engine: Engine = started(SPECS, self.now)
        for _ in range(2):
            self.sweep(200)
        self.sweep(3)

    def sweep(self, free_gb: float | None, *, after: float = 20, promised_gb: float = 0) -> Verdict:
        self.now += after
        free = None if free_gb is None else free_gb * GB
        found = [
            reading("disk.a.free", free, at=self.now, quality=None if free else Quality.TIMEOUT),
            reading("disk.b.free", 250.0 * GB, at=self.now),
            *(reading(f"disk.{label}.total", 300.0 * GB, at=self.now) for label in "ab"),
        ]
        if promised_gb:
            found.append(reading(PROMISED, promised_gb * GB, at=self.now))
        self.engine, _ = sweep(self.engine, found, MARKS, Clocks(self.now, self.now))
        return self.verdict()

    def verdict(self) -> Verdict:
        return judged(self.engine, MARKS, boot_now=self.now, wall_now=NOON)

    def asks(self) -> list[Do]:
        return [one.do for one in self.actions()]

    def actions(self) -> tuple[Action, ...]:
        return next_actions([JOB], self.verdict(), self.now, MARKS.ladder, last_step_at=self.now - 20)

    def said(self) -> str:
        return next(one.message for one in conditions(self.verdict()) if one.type == "DiskPressure")


def test_while_a_clean_up_may_still_help_nobody_else_is_ended() -> None:
    """Ending a writer takes its grace, and btrfs frees lazily: until then the next reading says nothing."""
    disk = Disk()
    assert disk.asks() == [Do.TERMINATE]
    disk.sweep(3, promised_gb=8)
    assert disk.asks() == []
    disk.sweep(3)
    assert disk.asks() == []
    assert "ReclaimIneffective" not in disk.said()


def test_one_that_gave_little_back_is_told_and_not_repeated() -> None:
    """The condition names it beside the reason that closed the gate; the next writer is left alone."""
    disk = Disk()
    disk.sweep(3, promised_gb=8)
    disk.sweep(4, after=60)
    assert disk.said().startswith("disk: FreeBelowThird, ReclaimIneffective, until space-free")
    assert "a clean-up promised 8 GB and gave 1 GB back" in disk.said()
    assert disk.asks() == []
    assert disk.verdict().level is Level.DRAIN


def test_the_last_mark_ends_work_all_the_same() -> None:
    """Below a gigabyte the host itself is in danger, so whoever writes goes."""
    disk = Disk()
    disk.sweep(3, promised_gb=8)
    disk.sweep(3, after=60)
    disk.sweep(0.5)
    assert disk.asks() == [Do.KILL]


def test_one_that_helped_leaves_the_next_writer_to_the_marks() -> None:
    """A quarter of the promise is help; where room is still short, the next one's turn has come."""
    disk = Disk()
    disk.sweep(2, promised_gb=8)
    disk.sweep(5, after=60)
    assert "ReclaimIneffective" not in disk.said()
    disk.sweep(3, promised_gb=4)
    disk.sweep(None, after=60)
    assert disk.engine.reclaim is not None
    assert disk.engine.reclaim.after_bytes is None, "silence is no room"
    disk.sweep(4.5)
    assert "ReclaimIneffective" in disk.said()


def test_a_disk_that_opened_has_forgotten_it() -> None:
    """The next closing is judged by what happens then."""
    disk = Disk()
    disk.sweep(3, promised_gb=80)
    for _ in range(40):
        disk.sweep(33)
    assert disk.verdict().admits
    disk.sweep(3)
    assert "ReclaimIneffective" not in disk.said()
    assert disk.asks() == [Do.TERMINATE]
