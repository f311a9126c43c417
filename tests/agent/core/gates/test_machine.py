"""The state machine of one gate, by hand-made sweeps."""

from __future__ import annotations

from dataclasses import replace

from journeyman.core.gates.machine import Phase, after_sleep, dwell_seconds, step
from journeyman.core.gates.rules import Level, indexed
from tests.support.gates import DWELL_SECONDS, HEAT, Bench, heat_gate, opened_bench, reading


def test_a_gate_begins_unknown_and_holds() -> None:
    """Before the first reading nothing is admitted."""
    state = Bench(heat_gate()).state
    assert (state.phase, state.level) == (Phase.UNKNOWN, Level.HOLD)


def test_two_fresh_good_sweeps_open_a_gate_that_never_closed() -> None:
    """One good reading may be luck; two are enough at a start."""
    bench = Bench(heat_gate())
    assert bench.feed(0, 50.0).level is Level.HOLD
    assert bench.feed(5, 50.0).phase is Phase.OPEN


def test_a_reading_from_before_the_start_opens_nothing() -> None:
    """Fresh means observed in this life of the gate."""
    bench = Bench(heat_gate(), begun=100.0)
    bench.feed_every(1, 90, 99, 50.0)
    assert bench.state.phase is Phase.UNKNOWN


def test_bad_news_counts_only_after_its_time() -> None:
    """A short peak passes: the mark must be passed for thirty seconds without a break."""
    bench = opened_bench()
    bench.feed_every(5, 10, 35, 85.0)
    assert (bench.state.phase, bench.state.level) == (Phase.CLOSING, Level.OPEN)
    bench.feed(38, 75.0)
    bench.feed_every(5, 40, 65, 85.0)
    assert bench.state.level is Level.OPEN
    assert bench.feed(70, 85.0).level is Level.HOLD


def test_a_critical_mark_skips_the_wait() -> None:
    """Above 100 there is nothing to wait for."""
    assert opened_bench().feed(6, 101.0).level is Level.KILL


def test_silence_does_not_stop_the_clock_of_bad_news() -> None:
    """A sensor that fails while it is hot wins no time: bad news counts from its first reading."""
    bench = opened_bench(heat_gate(unknown_after=1000))
    bench.feed(10, 85.0)
    bench.feed_every(5, 15, 35, None)
    assert bench.feed(40, 85.0).level is Level.HOLD


def test_while_closed_the_level_only_rises() -> None:
    """A gate that asked to suspend does not fall back to hold before it opens."""
    bench = opened_bench()
    bench.feed_every(5, 10, 40, 95.0)
    assert bench.state.level is Level.SUSPEND
    bench.feed_every(5, 45, 100, 85.0)
    assert bench.state.level is Level.SUSPEND


def test_between_the_marks_nothing_changes() -> None:
    """Cooler than the closing mark is not cool enough to open."""
    bench = opened_bench()
    bench.feed_every(5, 10, 40, 85.0)
    bench.feed_every(60, 45, 7200, 75.0)
    assert bench.state.phase is Phase.CLOSED


def test_a_closed_gate_opens_after_the_whole_dwell() -> None:
    """Every sweep of the dwell must be good; one bad moment begins it anew."""
    bench = opened_bench()
    bench.feed(10, 101.0)
    bench.feed_every(5, 15, 310, 60.0)
    assert bench.state.phase is Phase.OPENING
    bench.feed(314, 75.0)
    bench.feed_every(5, 315, 610, 60.0)
    assert bench.state.phase is Phase.OPENING
    assert bench.feed(615, 60.0).phase is Phase.OPEN


def test_the_worse_source_closes() -> None:
    """One hot zone of three is a hot host."""
    assert opened_bench().feed(10, 40.0, 101.0, 40.0).level is Level.KILL


def test_all_sources_must_agree_to_open() -> None:
    """One zone that is still warm keeps the gate closed, however cool the others are."""
    bench = opened_bench()
    bench.feed(10, 101.0, 40.0)
    bench.feed_every(5, 15, 1000, 40.0, 75.0)
    assert bench.state.phase is Phase.CLOSED


def test_a_witness_that_fell_silent_keeps_the_gate_closed() -> None:
    """The source that saw the heat must see that it is over; another one cannot speak for it."""
    bench = opened_bench()
    bench.feed(10, 40.0, 101.0)
    bench.feed_every(5, 15, 1000, 40.0, None)
    assert bench.state.phase is Phase.CLOSED


def test_a_sensor_that_failed_from_the_start_is_in_nobodys_way() -> None:
    """One broken file of fifty-two neither closes a gate nor keeps it closed."""
    bench = Bench(heat_gate())
    bench.feed_every(5, 0, 5, 50.0, None)
    assert bench.state.phase is Phase.OPEN
    bench.feed(10, 101.0, None)
    bench.feed_every(5, 15, 400, 50.0, None)
    assert bench.state.phase is Phase.OPEN


def test_the_third_closing_within_an_hour_doubles_the_dwell() -> None:
    """A gate that flaps waits 5, 5, 10, 20 minutes, and never more than 30."""
    bench = opened_bench()
    now, dwells = 10.0, []
    for _ in range(6):
        bench.feed(now, 101.0)
        dwells.append(dwell_seconds(bench.spec, bench.state, now))
        bench.feed(now + 1, 60.0)
        now += dwells[-1] + 2
        bench.feed(now, 60.0)
    assert dwells[:4] == [DWELL_SECONDS, DWELL_SECONDS, 2 * DWELL_SECONDS, 4 * DWELL_SECONDS]
    assert max(dwells) <= 1800


def test_an_unknown_sensor_holds_an_open_gate_after_its_grace() -> None:
    """Silence of the only heat sensor of a phone closes after three minutes."""
    bench = opened_bench(heat_gate(unknown_after=180))
    bench.feed_every(5, 10, 185, None)
    assert bench.state.level is Level.OPEN
    state = bench.feed(190, None)
    assert (state.level, state.reasons[0].code) == (Level.HOLD, "SensorError")


def test_a_gate_that_silence_closed_opens_between_the_marks() -> None:
    """No value was ever bad, so nothing has to become better than it was; only the dwell is owed."""
    bench = opened_bench()
    bench.feed(10, None)
    assert bench.state.level is Level.HOLD
    bench.feed_every(5, 15, 315, 75.0)
    assert bench.state.phase is Phase.OPEN


def test_where_the_policy_says_so_unknown_passes_without_being_called_open() -> None:
    """A server without a heat sensor works, and its gate still says Unknown."""
    bench = Bench(heat_gate(unknown_level=Level.OPEN))
    assert bench.feed(0, None).level is Level.HOLD
    state = bench.feed(5, None)
    assert (state.phase, state.level) == (Phase.UNKNOWN, Level.OPEN)


def test_even_then_silence_does_not_open_a_closed_gate() -> None:
    """A sensor that dies of the heat that it reported is no good news."""
    bench = opened_bench(heat_gate(unknown_level=Level.OPEN))
    bench.feed(10, 101.0)
    bench.feed_every(60, 15, 7200, None)
    assert bench.state.level is Level.KILL


def test_after_a_sleep_an_open_gate_needs_fresh_readings() -> None:
    """What was known before the lid was shut says nothing of now."""
    bench = opened_bench()
    bench.state = after_sleep(bench.state, 5000.0)
    assert (bench.state.level, bench.state.reasons[0].code) == (Level.HOLD, "HostSlept")
    bench.feed_every(5, 5000, 5005, 50.0)
    assert bench.state.phase is Phase.OPEN


def test_a_sleep_does_not_pay_the_dwell_of_a_closed_gate() -> None:
    """Closing the lid is no way to cool down on paper."""
    bench = opened_bench()
    bench.feed(10, 101.0)
    bench.feed_every(5, 15, 20, 60.0)
    bench.state = after_sleep(bench.state, 5000.0)
    bench.feed_every(5, 5000, 5295, 60.0)
    assert bench.state.phase is Phase.OPENING
    assert bench.feed(5300, 60.0).phase is Phase.OPEN


def test_the_first_reason_stays_first() -> None:
    """People are told what closed the gate, then what came on top of it."""
    bench = opened_bench()
    bench.feed_every(5, 10, 40, 85.0)
    bench.feed(45, 101.0)
    assert [reason.code for reason in bench.state.reasons] == ["Warm", "Burning"]


def test_a_gate_presses_only_with_a_reading_of_the_moment() -> None:
    """Still closed, but with nothing bad or nothing known now, it asks nothing of running work."""
    bench = opened_bench()
    assert bench.feed(10, 101.0).pressing is Level.KILL
    cooler = bench.feed(15, 60.0)
    assert (cooler.level, cooler.pressing) == (Level.KILL, Level.OPEN)
    bench.feed(20, 101.0)
    assert bench.feed(25, None).pressing is Level.OPEN


def test_an_average_tells_of_nothing_newer_than_its_beginning() -> None:
    """What waited for memory in ten seconds may have ended in the fifth: the ladder takes no second job."""
    bench = opened_bench()
    average = replace(reading(HEAT, 101.0, at=30), over_seconds=10)
    state = step(bench.spec, bench.state, indexed([average], 30), 30)
    assert (state.pressing, state.pressed_at) == (Level.KILL, 20)
