"""When a server that is ready has to prove again that it generates, and when its work proves it.

A generated token costs power, and one that is asked of a busy server waits behind its work.  So a server
whose requests succeed is not asked, and one that works is given as long as the proxy gives it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Traffic:
    """What the proxy has passed on to one model.

    Attributes:
        running: requests that its server has now.
        done: requests that it has answered to their end, since the proxy started.
        tokens_per_second: the mean of its replies since then, after their first token; None without any.
        waiting: requests that are held for it, or wait for their turn.
        asked: requests that have ended in whatever way, since the proxy started.
    """

    running: int
    done: int
    tokens_per_second: float | None = None
    waiting: int = 0
    asked: int = 0


@dataclass(frozen=True)
class Life:
    """What is known of a server that is ready.

    Attributes:
        seen_at: monotonic seconds of its last sign of life.
        done: what `Traffic.done` was at the last look; None where nobody could say.
    """

    seen_at: float
    done: int | None = None

    def seen(self, now: float) -> Life:
        """It has just generated a token."""
        return replace(self, seen_at=now)


def look(
    life: Life, traffic: Traffic | None, *, in_use: bool, now: float, patience: float
) -> tuple[Life, bool]:
    """Looks at a server once.

    Args:
        life: what was known.
        traffic: of the proxy; None where it cannot be asked.
        in_use: whether work of ours asks the server directly.
        now: monotonic seconds.
        patience: for how many seconds a server may work without finishing anything.

    Returns:
        What is known now, and whether it has to generate a token.
    """
    if traffic is None:
        known, is_busy = replace(life, done=None), in_use
    else:
        # Fewer than before are those of another proxy.
        answered = life.done is not None and traffic.done > life.done
        known = Life(now if answered else life.seen_at, traffic.done)
        if answered:
            return known, False
        is_busy = in_use or traffic.running > 0
    return known, not (is_busy and now - known.seen_at < patience)
