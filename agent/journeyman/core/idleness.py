"""Since when nobody has used a model server."""

from __future__ import annotations

from dataclasses import dataclass

from journeyman.core.liveness import Traffic


@dataclass(frozen=True)
class Idleness:
    """What is known of the use of a server.

    Attributes:
        used_at: monotonic seconds of the last look at which it was in use, or had been since the look before.
        asked: what `Traffic.asked` was at the last look; None where nobody has looked, or nobody could say.
    """

    used_at: float
    asked: int | None = None


def look_for_use(known: Idleness, traffic: Traffic | None, *, in_use: bool, now: float) -> Idleness:
    """Looks at a server once.

    Args:
        known: what was known.
        traffic: of the proxy; None where it cannot be asked, which counts as use: it may have a stream.
        in_use: whether work of ours asks the server directly.
        now: monotonic seconds.
    """
    if traffic is None:
        return Idleness(now)
    # Fewer requests than before are those of another proxy, and the first look has none to compare with.
    was_asked = traffic.asked != known.asked
    is_used = in_use or was_asked or traffic.running > 0 or traffic.waiting > 0
    return Idleness(now if is_used else known.used_at, traffic.asked)
