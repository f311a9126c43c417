"""What model servers have to do with the rest of the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from journeyman.core.gates.rules import Level
from journeyman.core.liveness import Traffic
from journeyman.core.model_admission import Refusal
from journeyman.core.server_config import ServerConfig
from journeyman.ports import JsonObject
from journeyman_updater.contract import WorkerRecord


class Room(Protocol):
    """The memory of this host, as far as model servers have to do with it."""

    async def refuse(self, config: ServerConfig) -> Refusal | None:
        """Why that server may not start now, for want of memory; None if it may."""
        ...

    async def settled(self, record: WorkerRecord) -> None:
        """That server has generated a token: what it has taken by now is remembered."""
        ...

    def shown(self, config: ServerConfig | None) -> JsonObject:
        """What such a server was expected to take, and what it took, for people; without a model, nothing."""
        ...


@dataclass(frozen=True)
class Neighbours:
    """What model servers have to do with the rest of the agent.

    Attributes:
        changed: called whenever one has changed its phase.
        memory: what the memory gate asks for.
        in_use: whether work of ours asks servers directly.
        traffic: what the proxy passes on now, by model; None where it cannot be asked.
        room: who judges whether a server may start, and learns what it took.
        wanted: the models that are asleep and for which the proxy holds requests; waits until there is one,
            and may return none.
    """

    changed: Callable[[], None]
    memory: Callable[[], Level]
    in_use: Callable[[], bool]
    traffic: Callable[[], Awaitable[Mapping[str, Traffic] | None]]
    room: Room
    wanted: Callable[[], Awaitable[Collection[str]]]
