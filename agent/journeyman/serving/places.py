"""Makes place for a model that somebody asks for, where memory is not for all at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from journeyman.core.model_precedence import must_finish
from journeyman.core.model_server import Phase
from journeyman.ports import Clock
from journeyman.serving.keeper import Keeper
from journeyman.serving.server import Server
from journeyman.settings import Settings


class Places:
    """The place of one model, for another one.

    One that nobody uses is ended at once.  One that is in use goes on for its turn; then it gets nothing new,
    so that it has finished what it has after a while, and what is held for it meanwhile makes it the next one
    that waits.  Of several that wait the highest rank is served first, and then who has waited longest.

    Args:
        running: those whose servers run.
        clock: time.
        settings: how long a turn is, and how long somebody waits for an answer.
    """

    def __init__(self, running: Callable[[], Sequence[Keeper]], clock: Clock, settings: Settings) -> None:
        self._running = running
        self._clock = clock
        self._settings = settings
        self._waiting: list[Keeper] = []

    async def made_for(self, wanted: Keeper) -> bool:
        """Whether another one has just been ended for it.

        Gives up when a request that was held has been refused by now, or when nobody gives way.

        Args:
            wanted: one in STARTING since it was asked for.
        """
        asked_at = wanted.server.state.since
        deadline = asked_at + self._settings.proxy_hold_seconds
        had_none = False
        self._waiting.append(wanted)
        try:
            while self._clock.monotonic() < deadline:
                if self._is_first(wanted):
                    others = [keeper for keeper in self._running() if keeper.server.gives_way]
                    # Whoever got a place a moment ago may not have started in it yet.
                    if had_none and not others:
                        return False
                    had_none = not others
                    if await self._got_one(wanted, others, deadline):
                        return True
                await self._clock.sleep(self._settings.model_probe_interval_seconds)
        finally:
            self._waiting.remove(wanted)
        return False

    def _is_first(self, wanted: Keeper) -> bool:
        return wanted is min(self._waiting, key=lambda one: (-one.server.rank, one.server.state.since))

    async def _got_one(self, wanted: Keeper, others: Sequence[Keeper], deadline: float) -> bool:
        """Whether one of the others has gone: of the lowest rank, and of those the one used least lately."""
        ordered = sorted(others, key=lambda keeper: (keeper.server.rank, keeper.use.since))
        for keeper in ordered:
            if await keeper.give_way(deadline):
                return True
        over = next((keeper for keeper in ordered if self._turn_is_over(keeper.server, wanted.server)), None)
        # Nobody is made to finish for a client that has gone.
        if over is None or not await wanted.use.is_waited_for():
            return False
        return await over.give_way(deadline, must_finish=True)

    def _turn_is_over(self, server: Server, wanted: Server) -> bool:
        seconds = self._clock.monotonic() - max(server.state.since, wanted.state.since)
        is_over = must_finish(server.rank, wanted.rank, seconds, self._settings.model_turn_seconds)
        return server.state.phase is Phase.READY and is_over
