"""Which model server goes first when there is not enough memory for all of them."""

from __future__ import annotations

from journeyman.model.inference import ServicePriority

# The usual one is 0, as is that of tasks and lane jobs.
RANKS = {
    ServicePriority.BATCH: -2,
    ServicePriority.LOW: -1,
    ServicePriority.NORMAL: 0,
    ServicePriority.HIGH: 1,
    ServicePriority.CRITICAL: 2,
}


def must_finish(rank: int, other_rank: int, seconds: float, turn_seconds: float) -> bool:
    """Whether a model that is in use has to finish what it has, for another one, and gets nothing new.

    Args:
        rank: its own.
        other_rank: of the one that waits for its place.
        seconds: how long it has been ready while that one waited.
        turn_seconds: how long it may go on all the same.
    """
    return rank <= other_rank and seconds >= turn_seconds
