"""What the loops have in common that renew a credential of this node: they look, tell, and try again."""

from __future__ import annotations

from abc import ABC, abstractmethod

import structlog

from journeyman.core.credential_condition import told_of
from journeyman.core.gates.conditions import Told
from journeyman.errors import ControlPlaneError, HostError, JourneymanError
from journeyman.ports import Clock

log = structlog.get_logger(__name__)


class RenewalLoop(ABC):
    """Looks at one credential from time to time.

    Args:
        clock: time.
        interval_seconds: from one look to the next, and so to the next try.
        renews: what it is called, such as `token`; empty as long as there is nothing to renew.
    """

    def __init__(self, clock: Clock, interval_seconds: float, renews: str = "") -> None:
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._renews = renews
        self._problem: JourneymanError | None = None

    @property
    def problem(self) -> str:
        """Why the last try to renew it came to nothing; empty where it did not."""
        return str(self._problem or "")

    def told(self) -> tuple[Told, ...]:
        """What the control plane is told about it."""
        return told_of(self._renews, self._problem)

    async def run(self) -> None:
        """Looks for ever; a renewal that fails is tried again at the next look."""
        while True:
            try:
                await self.look()
            except (ControlPlaneError, HostError) as error:
                # A cause may last for days, and a look a minute says the same each time.
                if str(error) != self.problem:
                    log.warning("credential_renewal_failed", credential=self._renews, error=str(error))
                self._problem = error
            else:
                self._problem = None
            await self._clock.sleep(self._interval_seconds)

    @abstractmethod
    async def look(self) -> None:
        """Renews it if it is due.  Raises ControlPlaneError and HostError."""
