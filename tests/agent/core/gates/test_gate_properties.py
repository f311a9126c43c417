"""What holds for a gate whatever its sensors say."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from journeyman.core.gates.machine import GateState, Phase, dwell_seconds, step
from journeyman.core.gates.rules import GateSpec, Level, indexed
from journeyman.model.readings import Quality
from tests.support.gates import HEAT, HOLD_SECONDS, Bench, heat_gate, reading

pytestmark = pytest.mark.slow

# Two sources, each a temperature or a failure, at steps of a few seconds to some minutes.
values = st.one_of(st.none(), st.floats(0, 120))
sweeps = st.lists(st.tuples(st.integers(1, 200), values, values), min_size=1, max_size=60)
Sweeps = list[tuple[int, float | None, float | None]]


def history(spec: GateSpec, given_sweeps: Sweeps) -> list[tuple[float, GateState, GateState, bool]]:
    """(time, before, after, whether any source was known) of each sweep."""
    bench, now, seen = Bench(spec), 0.0, []
    for gap, first, second in given_sweeps:
        now += gap
        before = bench.state
        after = bench.feed(now, first, second)
        seen.append((now, before, after, first is not None or second is not None))
    return seen


@given(sweeps)
def test_a_closed_gate_never_opens_within_its_dwell(given_sweeps: Sweeps) -> None:
    """From the last bad sweep to the opening passes at least the dwell of that moment."""
    spec = heat_gate()
    closed_at = None
    for now, before, after, _ in history(spec, given_sweeps):
        if after.closed and not before.closed:
            closed_at = now
        if before.closed and not after.closed:
            assert closed_at is not None
            assert now - closed_at >= dwell_seconds(spec, before, now)


@given(sweeps)
def test_an_open_gate_never_closes_within_its_wait_unless_the_mark_is_critical(given_sweeps: Sweeps) -> None:
    """Below the critical mark, a gate that has just opened stays open for thirty seconds at least."""
    opened_at = None
    for now, before, after, _ in history(heat_gate(unknown_after=1e9), given_sweeps):
        if after.level is Level.OPEN and before.level is not Level.OPEN:
            opened_at = now
        if before.level is Level.OPEN and after.level in {Level.HOLD, Level.SUSPEND}:
            assert opened_at is not None
            assert now - opened_at >= HOLD_SECONDS


@given(sweeps)
def test_the_level_of_a_closed_gate_is_monotone(given_sweeps: Sweeps) -> None:
    """Until it opens, a gate asks for the same or for more."""
    for _, before, after, _ in history(heat_gate(), given_sweeps):
        if before.closed and after.closed:
            assert after.level >= before.level


@given(sweeps, st.sampled_from([Level.OPEN, Level.HOLD]), st.floats(0, 600))
def test_silence_never_opens(given_sweeps: Sweeps, unknown_level: Level, grace: float) -> None:
    """A sweep in which nothing is known never lowers a level, but for the policy at the very start."""
    spec = heat_gate(unknown_level=unknown_level, unknown_after=grace)
    for _, before, after, any_known in history(spec, given_sweeps):
        if any_known or (before.phase is Phase.UNKNOWN and unknown_level is Level.OPEN):
            continue
        assert after.level >= before.level


@given(sweeps)
def test_nothing_missing_is_ever_called_open(given_sweeps: Sweeps) -> None:
    """A gate goes to Open only in a sweep in which every former witness was known and good."""
    for _, before, after, any_known in history(heat_gate(), given_sweeps):
        if after.phase is Phase.OPEN and before.phase not in {Phase.OPEN, Phase.CLOSING}:
            assert any_known


@given(sweeps, st.integers(0, 59))
def test_the_worse_source_decides_to_close(given_sweeps: Sweeps, index: int) -> None:
    """Making one source of one sweep critical closes the gate there, whatever the other one says."""
    where = index % len(given_sweeps)
    gap, first, _ = given_sweeps[where]
    given_sweeps[where] = (gap, first, 110.0)
    _, _, after, _ = history(heat_gate(), given_sweeps)[where]
    assert after.level is Level.KILL


few_values = st.sampled_from([None, 20.0, 69.0, 75.0, 85.0, 105.0])


@given(st.lists(st.tuples(st.integers(60, 200), few_values, few_values), min_size=1, max_size=60))
# Closed by one source, kept closed by the other, and by the silence of a witness; then open.
@example([(60, 20.0, 20.0), (60, 105.0, 20.0), *[(150, 20.0, 75.0)] * 4, *[(150, 20.0, None)] * 4,
          *[(150, 20.0, 20.0)] * 4])  # fmt: skip
def test_all_sources_must_agree_to_open(given_sweeps: Sweeps) -> None:
    """For the whole dwell every known source was at its open mark, and every former witness was known."""
    spec, disagreed_at = heat_gate(), 0.0
    for (_, *found), (now, before, after, _) in zip(given_sweeps, history(spec, given_sweeps), strict=True):
        known = {f"{HEAT}@zone{number}": value for number, value in enumerate(found) if value is not None}
        cool = {key for key, value in known.items() if value <= 70}
        if before.closed and not (known.keys() | before.witnesses) <= cool:
            disagreed_at = now
        if before.closers and before.closed and not after.closed:
            assert now - disagreed_at >= dwell_seconds(spec, before, now)


@given(sweeps, st.sampled_from([quality for quality in Quality if quality is not Quality.OK]))
def test_no_quality_but_ok_counts_as_a_value(given_sweeps: Sweeps, quality: Quality) -> None:
    """A cool value that is stale or suspect opens nothing."""
    spec, bench, now = heat_gate(), Bench(heat_gate()), 0.0
    bench.feed(0, 110.0)
    for gap, value, _ in given_sweeps:
        now += gap
        cool = reading(HEAT, value if value is None else value / 2, at=now, source="zone0", quality=quality)
        bench.state = step(spec, bench.state, indexed([cool], now), now)
        assert bench.state.level is Level.KILL
