"""What a heartbeat says that this node can do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from journeyman.core.capability import GIB, capability_of
from journeyman.model.fleet_node import Capability


def of(models: Sequence[str], speed: float | None = None) -> Capability:
    return capability_of(
        accelerator="none",
        total_bytes=8 * GIB - 1,
        available_bytes=GIB,
        ready_models=models,
        context_tokens=4096,
        tokens_per_second=speed,
    )


@pytest.mark.parametrize(("speed", "told"), [(None, 0), (0.2, 1), (41.6, 42)])
def test_the_speed_is_told_in_whole_tokens(speed: float | None, told: int) -> None:
    """The contract has an integer; 0 is for what nobody has measured, and a slow model is not that."""
    assert of(["a"], speed).to_wire()["tokensPerSecond"] == told


def test_a_node_on_which_nothing_answers_promises_nothing() -> None:
    """Neither a model nor a context of it, and memory is rounded down as the operator does it."""
    capability = of([])
    assert (capability.installed_models, capability.max_context_tokens) == ((), 0)
    assert (capability.total_ram_gb, capability.available_ram_gb) == (7, 1)
