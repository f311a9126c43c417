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
