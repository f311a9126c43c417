"""Whether the host slept: the boot-time clock goes on in sleep, the monotonic clock does not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Clocks:
    """Both clocks at one moment, in seconds.

    Attributes:
        boot: counts through sleep (CLOCK_BOOTTIME; the wall clock where there is none).
        monotonic: stands still in sleep.
    """

    boot: float
    monotonic: float


def slept_seconds(before: Clocks, now: Clocks, gap_seconds: float) -> float:
    """How long the host slept between two looks at its clocks; 0.0 for less than the gap.

    Args:
        before: the earlier look.
        now: the later look.
        gap_seconds: the smallest difference that is a sleep and no rounding or clock step.
    """
    gap = (now.boot - before.boot) - (now.monotonic - before.monotonic)
    return gap if gap > gap_seconds else 0.0


def awake_hold_left(slept_at: float | None, boot_now: float, awake_seconds: float) -> float:
    """How much longer nothing is taken on after a sleep, so that dark wakes take no work with them.

    Args:
        slept_at: when the last sleep was noticed, on the boot-time clock; None for never.
        boot_now: the boot-time clock.
        awake_seconds: the unbroken time awake that is asked for.
    """
    return 0.0 if slept_at is None else max(0.0, awake_seconds - (boot_now - slept_at))
