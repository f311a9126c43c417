"""All gates together: sleep, forcing, verdicts, conditions, replay."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from journeyman.core.gates.conditions import conditions, updatable, with_conditions
from journeyman.core.gates.engine import Engine, judged, started, sweep
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.replay import replay
from journeyman.core.gates.report import reading_from_json, reading_json
from journeyman.core.gates.rules import Level
from journeyman.core.gates.sleep import Clocks
from journeyman.core.gates.verdict import Verdict
from journeyman.errors import UsageError
from journeyman.model.meta import Condition, ConditionStatus, find_condition
from tests.support.gates import HEAT, NOON, heat_gate, reading

MARKS = Marks()


class Host:
    """A host with one heat gate, both clocks in the test's hand."""

    def __init__(self) -> None:
        self.boot = self.monotonic = 1000.0
        self.engine: Engine = started([heat_gate()], self.boot)

    def sweep(self, value: float | None, *, after: float = 5.0, asleep: float = 0.0) -> Verdict:
        self.boot += after + asleep
        self.monotonic += after
        found = [reading(HEAT, value, at=self.boot)]
        self.engine, _ = sweep(self.engine, found, MARKS, Clocks(self.boot, self.monotonic))
        return self.verdict()

    def verdict(self) -> Verdict:
        return judged(self.engine, MARKS, boot_now=self.boot, wall_now=NOON)


def awake_host() -> Host:
    host = Host()
    host.sweep(50)
    assert host.sweep(50).admits
    return host


def test_a_sleep_makes_every_gate_unknown_and_holds_for_a_minute_awake() -> None:
    """After the lid opens nothing is admitted before fresh readings and a minute of unbroken wake."""
    host = awake_host()
    found = host.sweep(50, asleep=3600)
    assert not found.admits
    assert "HostSlept" in found.explanation()
    assert host.engine.slept_total_seconds == pytest.approx(3600)
    host.sweep(50, after=10)
    assert not host.sweep(50, after=45).admits
    assert host.sweep(50, after=10).admits


def test_a_short_gap_of_the_clocks_is_no_sleep() -> None:
    """Rounding and small steps of time are not taken for a closed lid."""
    assert awake_host().sweep(50, asleep=29).admits


def test_a_forced_gate_obeys_a_person_until_the_end_of_the_word() -> None:
    """Forced open it admits although it is hot; a second after its end the sensor counts again."""
    host = awake_host()
    host.sweep(110)
    host.engine = host.engine.force("thermal", Level.OPEN, NOON + timedelta(hours=1))
    assert host.verdict().admits
    later = judged(host.engine, MARKS, boot_now=host.boot, wall_now=NOON + timedelta(hours=1))
    assert not later.admits


def test_a_gate_that_this_host_does_not_have_cannot_be_forced() -> None:
    """The error names those that it has."""
    with pytest.raises(UsageError) as raised:
        awake_host().engine.force("thermals", Level.OPEN, NOON)
    assert "thermal" in raised.value.advice


def test_the_explanation_stands_still_while_nothing_changes() -> None:
    """What the node writes about itself changes on transitions alone, although readings move all the time."""
    host = awake_host()
    first = host.sweep(110)
    second = host.sweep(115)
    assert first.explanation() == second.explanation() == "thermal: Burning, until cool for 300 s"
    assert conditions(first) == conditions(second)


def test_conditions_say_true_false_and_unknown() -> None:
    """Pressure, none, and nobody knows are three things."""
    host = awake_host()
    assert [one.status for one in conditions(host.verdict())] == [
        ConditionStatus.FALSE,
        ConditionStatus.FALSE,
    ]
    silent = conditions(host.sweep(None))
    assert [(one.type, one.status) for one in silent] == [
        ("ThermalPressure", ConditionStatus.UNKNOWN),
        ("SensorsDegraded", ConditionStatus.TRUE),
    ]
    hot = conditions(host.sweep(110))
    assert (hot[0].status, hot[0].reason) == (ConditionStatus.TRUE, "Burning")


def test_conditions_of_others_are_kept_and_nothing_is_written_twice() -> None:
    """A merge patch replaces the array, so the operator's Ready must come back with ours."""
    ready = Condition(
        type="Ready", status=ConditionStatus.TRUE, reason="Fresh", message="", last_transition_time=NOON
    )
    told = conditions(awake_host().verdict())
    written = with_conditions([ready], told, NOON)
    assert written is not None
    assert find_condition(written, "Ready") == ready
    assert with_conditions(written, told, NOON + timedelta(hours=1)) is None


def test_a_hot_node_is_not_updatable() -> None:
    """A release that selects on the label does not wait for a hot node."""
    host = awake_host()
    assert updatable(host.verdict()) == "true"
    assert updatable(host.sweep(110)) == "false"


def test_a_reading_survives_its_journey_through_a_trace() -> None:
    """What the ring wrote is what the replay reads, age and quality included."""
    one = reading(HEAT, 71.5, at=90.0, stale_after=15.0)
    back = reading_from_json(reading_json(one, 100.0), boot_now=100.0, wall_now=NOON)
    assert (back.key, back.value, back.boot_seconds, back.stale_after_seconds) == (one.key, 71.5, 90.0, 15.0)


def lines(*entries: object) -> list[str]:
    return [json.dumps(entry) for entry in entries]


def test_a_charge_limiter_that_flips_every_half_minute_does_not_make_the_gate_flap() -> None:
    """Ten minutes of AC and battery in turn: at most two transitions after the start."""
    memory = {"memory.available": 8e9, "memory.total": 16e9, "thermal.cpu_margin": 40}
    flips = [
        {"t": second, "set": {**memory, "power.on_battery": second // 30 % 2}} for second in range(0, 600, 5)
    ]
    found = [one for one in replay(lines({"hostClass": "linux-laptop"}, *flips), MARKS) if one.at_seconds > 5]
    assert len([one for one in found if one.transition.gate == "power"]) <= 2


def test_a_sleep_in_a_trace_is_replayed() -> None:
    """`slept` moves one clock and not the other, as a closed lid does."""
    good = {"memory.available": 8e9, "memory.total": 16e9}
    trace = lines(
        {"hostClass": "container"},
        {"t": 0, "set": good},
        {"t": 5, "set": good},
        {"t": 4000, "set": good, "slept": 3900},
    )
    last = [one for one in replay(trace, MARKS) if one.at_seconds == 4000]
    assert ("memory", "HostSlept") in [(one.transition.gate, one.transition.reason) for one in last]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 of the trace is no JSON"),
        ("[]", "line 2 of the trace is no JSON object"),
        ('{"t": "noon"}', "line 2 of the trace has no time"),
        ('{"t": -5}', "line 2 of the trace goes back in time"),
        ('{"t": 5, "set": {"a": "hot"}}', "line 2 of the trace holds a reading that is none"),
        ('{"t": 5, "readings": [{"value": 1}]}', "line 2 of the trace holds a reading that is none"),
    ],
)
def test_a_bad_line_of_a_trace_is_named(line: str, said: str) -> None:
    """One line that says which line is wrong, and nothing half-replayed in silence."""
    with pytest.raises(UsageError) as raised:
        list(replay(['{"t": 0}', line], MARKS))
    assert said in raised.value.message


def test_gates_that_only_concern_the_gpu_do_not_hold_the_host() -> None:
    """The GPU is withdrawn, not the node."""
    values = {"memory.available": 8e9, "memory.total": 16e9, "gpu.temperature": 50, "gpu.failed": 1}
    sweeps = [{"t": second, "set": values} for second in range(0, 30, 5)]
    found = replay(lines({"hostClass": "container"}, *sweeps), MARKS)
    gates = {one.transition.gate: one.transition.after for one in found}
    assert gates["memory"] is Level.OPEN
    assert "gpu" not in gates
