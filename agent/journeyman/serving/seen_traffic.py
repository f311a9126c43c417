"""What the proxy passes on while memory is short, for the ladder, which cannot wait for an answer."""

from __future__ import annotations

from collections.abc import Mapping

from journeyman.core.liveness import Traffic
from journeyman.ports import Clock
from journeyman.serving.neighbours import Neighbours
from journeyman.waiting import first_of

# How long memory that is short waits for a proxy that hangs; one that does not answers in some milliseconds.
ANSWER_SECONDS = 1.0


class SeenTraffic:
    """The last answer of the proxy.

    Args:
        neighbours: who asks the proxy.
        clock: time.
        has_proxy: whether there is one at all.
    """

    def __init__(self, neighbours: Neighbours, clock: Clock, *, has_proxy: bool) -> None:
        self._neighbours = neighbours
        self._clock = clock
        self._has_proxy = has_proxy
        self._known: Mapping[str, Traffic] | None = None

    async def ask(self) -> None:
        """Asks the proxy; where it does not answer in time, nothing is known."""
        self._known = None
        if self._has_proxy:
            answered, _ = await first_of(self._answer(), self._clock.sleep(ANSWER_SECONDS))
            self._known = None if answered.cancelled() else answered.result()

    def is_used(self, model: str) -> bool:
        """Whether somebody may have that model's server now; nobody knows means yes."""
        if self._neighbours.in_use():
            return True
        if not self._has_proxy:
            return False
        if self._known is None:
            return True
        traffic = self._known.get(model, Traffic(0, 0))
        return traffic.running > 0 or traffic.waiting > 0

    async def _answer(self) -> Mapping[str, Traffic] | None:
        return await self._neighbours.traffic()
