"""How far the server's clock is from ours, from the Date headers of its replies.

One odd Date must not move us: a cache or a proxy on the way may have a clock of its own, and a heartbeat
that is a minute and a half in the past costs the node its claims.  So a jump counts once the next reply
says the same.  That holds for the first reply of a process, too: until a second one agrees, our own clock is
no worse than that Date, and an agent that starts sends several requests in its first second.
"""

from __future__ import annotations

from dataclasses import dataclass

# A Date header has whole seconds, and so it says nothing about an offset smaller than this.
SMALLEST_OFFSET_SECONDS = 2.0


@dataclass(frozen=True)
class ClockOffset:
    """What is believed, and what was said last and is not believed yet.

    Attributes:
        seconds: the server's clock minus ours, as believed.
        unproven: the last offset that differed from it, or None.
    """

    seconds: float = 0.0
    unproven: float | None = None

    def after(self, measured: float) -> ClockOffset:
        """What is believed after one more reply.

        Args:
            measured: the server's clock minus ours, in seconds, good to a second or so.
        """
        if _agree(measured, self.seconds):
            return ClockOffset(measured)
        if self.unproven is not None and _agree(measured, self.unproven):
            return ClockOffset(measured)
        return ClockOffset(self.seconds, measured)

    def by_last_reply(self) -> float:
        """The offset in seconds that the last reply alone tells, as `reported`."""
        return _told(self.seconds if self.unproven is None else self.unproven)

    def reported(self) -> float:
        """The offset in seconds; 0.0 where it is too small to be told from none."""
        return _told(self.seconds)


def _told(seconds: float) -> float:
    return seconds if abs(seconds) >= SMALLEST_OFFSET_SECONDS else 0.0


def _agree(one: float, other: float) -> bool:
    return abs(one - other) < 2 * SMALLEST_OFFSET_SECONDS
