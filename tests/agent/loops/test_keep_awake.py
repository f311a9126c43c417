"""The host is kept awake from the first job to the end of the last one."""

from __future__ import annotations

from journeyman.errors import HostError
from journeyman.loops.keep_awake import KeepAwake
from journeyman.model.meta import ConditionStatus
from journeyman.model.readings import Reading
from tests.support.gates import reading


class Scripted:
    """Implements SleepAssertion, and fails while it is told to."""

    def __init__(self) -> None:
        self.held = False
        self.fails = False
        self.done: list[str] = []

    def hold(self) -> None:
        if self.fails:
            raise HostError("no such program")
        if not self.held:
            self.held = True
            self.done.append("hold")

    def release(self) -> None:
        self.held = False
        self.done.append("release")

    def is_held(self) -> bool:
        return self.held


class Bench:
    """A host on power, whose work a test begins and ends."""

    def __init__(self, assertion: Scripted | None) -> None:
        self.busy = False
        self.readings: list[Reading] = [reading("power.on_battery", 0.0)]
        self.awake = KeepAwake(
            assertion=assertion,
            busy=lambda: self.busy,
            readings=lambda: self.readings,
            has_battery=True,
        )

    def decide(self, *, busy: bool) -> str:
        self.busy = busy
        self.awake.decide()
        [told] = self.awake.told()
        return told.reason


def test_it_is_held_while_work_runs_and_let_go_at_once_after() -> None:
    """One request however often it is decided, and none before or after."""
    assertion = Scripted()
    bench = Bench(assertion)
    assert bench.decide(busy=False) == "NoRisk"
    assert assertion.done == []
    assert [bench.decide(busy=True) for _ in range(3)] == ["NoRisk"] * 3
    assert assertion.done == ["hold"]
    assert bench.decide(busy=False) == "NoRisk"
    bench.decide(busy=False)
    assert assertion.done == ["hold", "release"]


def test_a_pulled_plug_lets_it_go_while_work_runs() -> None:
    """The battery is worth more than the job, and the node says what that means for it."""
    assertion = Scripted()
    bench = Bench(assertion)
    bench.decide(busy=True)
    bench.readings = [reading("power.on_battery", 1.0)]
    assert bench.decide(busy=True) == "OnBattery"
    assert not assertion.held


def test_a_request_that_fails_is_a_risk_and_is_made_again() -> None:
    """It is no error of the work; as soon as the host takes it the risk is over."""
    assertion = Scripted()
    assertion.fails = True
    bench = Bench(assertion)
    assert bench.decide(busy=True) == "AssertionNotHeld"
    [told] = bench.awake.told()
    assert told.status is ConditionStatus.TRUE
    assertion.fails = False
    assert bench.decide(busy=True) == "NoRisk"


def test_an_assertion_that_was_lost_is_taken_again() -> None:
    """Somebody ended caffeinate: the node says so until it is back."""
    assertion = Scripted()
    bench = Bench(assertion)
    bench.decide(busy=True)
    assertion.held = False
    assert bench.awake.told()[0].reason == "AssertionNotHeld"
    assert bench.decide(busy=True) == "NoRisk"


def test_a_host_that_is_not_ours_to_keep_awake_says_nothing() -> None:
    """No condition, no request."""
    bench = Bench(None)
    bench.busy = True
    bench.awake.decide()
    bench.awake.let_go()
    assert bench.awake.told() == ()
