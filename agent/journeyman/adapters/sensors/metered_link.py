"""NetworkManager: whether the link with the default route is metered, asked over D-Bus by `busctl`.

The numbers are those of NMMetered (libnm): unknown, yes, no, guessed yes, guessed no.  As its documentation
advises, a guessed yes is a yes and all else is none.
"""

from __future__ import annotations

import re

from journeyman.adapters.sensors.access import Run
from journeyman.model.readings import Measurement, Quality, missing

NAME, UNIT, SOURCE = "network.metered", "flag", "NetworkManager"
SERVICE = "org.freedesktop.NetworkManager"
QUESTION = (
    "busctl",
    "--system",
    "get-property",
    SERVICE,
    "/org/freedesktop/NetworkManager",
    SERVICE,
    "Metered",
)
DEADLINE_SECONDS = 2.0
ANSWER = re.compile(r"u ([0-4])\s*")
METERED = {"1", "3"}


class MeteredLink:
    """`network.metered`."""

    name = "metered_link"
    period_seconds = 60.0

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        text = self._run(QUESTION, DEADLINE_SECONDS)
        if text.value is None:
            return [missing(NAME, UNIT, SOURCE, text.quality, text.detail)]
        match = ANSWER.fullmatch(text.value)
        if match is None:
            return [missing(NAME, UNIT, SOURCE, Quality.ERROR, f"{text.value[:40]!r} is no answer")]
        return [Measurement(NAME, float(match[1] in METERED), UNIT, SOURCE)]
