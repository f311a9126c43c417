"""What model servers have to do with the rest of the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from journeyman.core.gates.rules import Level
from journeyman.core.liveness import Traffic
from journeyman.core.model_admission import Refusal
from journeyman.core.server_config import ServerConfig


@dataclass(frozen=True)
class Neighbours:
    """What model servers have to do with the rest of the agent.

    Attributes:
        changed: called whenever one has changed its phase.
        memory: what the memory gate asks for.
        in_use: whether work of ours asks servers directly.
        traffic: what the proxy passes on now, by model; None where it cannot be asked.
        refuse: why a server may not start, for want of memory; None if it may.
        wanted: the models that are asleep and for which the proxy holds requests; waits until there is one,
            and may return none.
    """

    changed: Callable[[], None]
    memory: Callable[[], Level]
    in_use: Callable[[], bool]
    traffic: Callable[[], Awaitable[Mapping[str, Traffic] | None]]
    refuse: Callable[[ServerConfig], Awaitable[Refusal | None]]
    wanted: Callable[[], Awaitable[Collection[str]]]
