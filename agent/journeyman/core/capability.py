"""What this node can do, in the words of the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from journeyman.core.speed import on_the_wire
from journeyman.model.fleet_node import Accelerator, Capability

GIB = 1024**3


def capability_of(
    *,
    accelerator: str,
    total_bytes: int,
    available_bytes: int,
    ready_models: Sequence[str],
    context_tokens: int,
    tokens_per_second: float | None,
) -> Capability:
    """The complete capability of a heartbeat.

    Args:
        accelerator: `metal`, `cuda`, `vulkan` or `none`.
        total_bytes: memory of the host, or of the group that we may use.
        available_bytes: what of it is free now.
        ready_models: the models that answer now; one that is loading would be promised too early.
        context_tokens: the longest context of one request to any of them.
        tokens_per_second: of the first of them that has been measured; None if none has.

    Returns:
        Memory in whole GiB, rounded down as the operator does it.
    """
    return Capability(
        accelerator=Accelerator(accelerator),
        total_ram_gb=total_bytes // GIB,
        available_ram_gb=available_bytes // GIB,
        installed_models=tuple(ready_models),
        # Zero fails every task that asks for a context, which is right while nothing answers.
        max_context_tokens=context_tokens if ready_models else 0,
        tokens_per_second=on_the_wire(tokens_per_second),
    )
