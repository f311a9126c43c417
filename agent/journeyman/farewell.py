"""What the daemon does when its host sleeps or shuts down, and when that is over."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from journeyman.adapters.logind import LogindPower, has_system_bus
from journeyman.adapters.mac_power import MacPower, load_iokit
from journeyman.core.holds import Hold, Owner
from journeyman.errors import JourneymanError
from journeyman.loops.power_loop import PowerLoop
from journeyman.model.power import Going
from journeyman.parts import Parts
from journeyman.ports import PowerEvents
from journeyman.settings import Settings

REASONS = {Going.SLEEP: "the host goes to sleep", Going.SHUTDOWN: "the host shuts down"}


def power_of_this_host(settings: Settings) -> PowerEvents | None:
    """Who tells of sleep and shutdown here; None where only SIGTERM does, as on phones and in containers."""
    if sys.platform == "darwin":
        return MacPower(load_iokit)
    return LogindPower(timeout_seconds=settings.probe_timeout_seconds) if has_system_bus() else None


def power_loop_of(parts: Parts, settings: Settings, events: PowerEvents | None) -> PowerLoop:
    """The loop that follows the power of this host."""
    farewell = Farewell(parts, settings)
    return PowerLoop(
        events=events,
        clock=parts.clock,
        settings=settings,
        leave=farewell.leave,
        come_back=farewell.come_back,
    )


class Farewell:
    """Says good-bye with all parts, and comes back.

    Args:
        parts: of the daemon.
        settings: how long it may take; half of it is kept for the last heartbeat.
    """

    def __init__(self, parts: Parts, settings: Settings) -> None:
        self._parts = parts
        self._seconds = settings.farewell_seconds

    async def leave(self, why: Going) -> None:
        """Hands back what cannot run, and says good-bye; what cannot be said in time is left out."""
        parts = self._parts
        parts.holds.hold(Hold(Owner.SHUTDOWN, REASONS[why], parts.clock.now()))
        with contextlib.suppress(JourneymanError, TimeoutError):
            async with asyncio.timeout(self._seconds / 2):
                if why is Going.SHUTDOWN:
                    # They would die with the host; a claim without a run is handed back by the next look.
                    runner = parts.tasks.runner
                    stops = [runner.cancel(claim) for claim in runner.claims()]
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._seconds / 4):
                            await asyncio.gather(*stops)
                await parts.tasks.look_afresh()
                await parts.tasks.outbox.flush(self._seconds / 4)
        await asyncio.gather(
            parts.heartbeat.part(work_goes_on=bool(parts.tasks.runner.claims())),
            parts.registrations.part(),
        )

    def come_back(self) -> None:
        """Speaks again, at first with the gates' hold, as after each sleep."""
        self._parts.gates.woke()
        self._parts.tasks.doubt()
        self._parts.holds.release(Owner.SHUTDOWN)
        self._parts.heartbeat.speak_again()
        self._parts.registrations.speak_again()
