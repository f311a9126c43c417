"""Holds the host awake while work runs, and lets it go at once after.

It leaves to others when it is asked (`decide`), and how a host is kept awake (`ports.SleepAssertion`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from journeyman.core.gates.conditions import Told
from journeyman.core.keep_awake import Wish, sleep_risk, wish
from journeyman.errors import HostError
from journeyman.model.readings import Reading
from journeyman.ports import SleepAssertion

log = structlog.get_logger(__name__)


class KeepAwake:
    """The sleep assertion of this host.

    Args:
        assertion: how the host is kept awake; None where that is not our business, and nothing is told.
        busy: whether work runs.
        readings: those of the last sweep.
        has_battery: whether the host has one.
    """

    def __init__(
        self,
        *,
        assertion: SleepAssertion | None,
        busy: Callable[[], bool],
        readings: Callable[[], Sequence[Reading]],
        has_battery: bool,
    ) -> None:
        self._assertion = assertion
        self._busy = busy
        self._readings = readings
        self._has_battery = has_battery
        self._wish = Wish(awake=False)
        self._failed = False

    def decide(self) -> None:
        """To be called whenever work begins or ends, and after each sweep."""
        if self._assertion is None:
            return
        before = self._wish
        self._wish = wish(self._readings(), busy=self._busy(), has_battery=self._has_battery)
        if self._wish.awake:
            self._hold(self._assertion)
        elif before.awake:
            self._assertion.release()
            log.info("sleep_allowed", risk=self._wish.risk.value)

    def let_go(self) -> None:
        """Lets the host sleep, as the agent ends."""
        if self._assertion is not None:
            self._assertion.release()

    def told(self) -> tuple[Told, ...]:
        """The condition SleepRisk, on hosts that can be kept awake."""
        if self._assertion is None:
            return ()
        return (sleep_risk(self._wish, is_held=self._assertion.is_held()),)

    def _hold(self, assertion: SleepAssertion) -> None:
        try:
            assertion.hold()
        except HostError as error:
            if not self._failed:
                log.warning("sleep_not_prevented", error=error.message)
            self._failed = True
        else:
            self._failed = False
