"""What a sensor said: a value or nothing, and how far it can be believed.

Missing is never zero and never fine: a reading without a value has a quality that says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

LONGEST_DETAIL = 128


class Quality(StrEnum):
    """How far a reading can be believed; only OK counts as known."""

    OK = "ok"
    STALE = "stale"
    SUSPECT = "suspect"
    UNSUPPORTED = "unsupported"
    DENIED = "denied"
    ERROR = "error"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class Measurement:
    """What one source says of one signal, before it gets a time.

    Attributes:
        name: the signal, such as `thermal.cpu_margin`.
        value: in `unit`, or None.
        unit: `celsius`, `percent`, `bytes`, `seconds`, `count`, `level`, `flag`, `per_second`.
        source: who says so, such as `hwmon0/temp1`; two sources of one signal are two witnesses.
        quality: OK exactly if there is a value to be believed.
        detail: for people, 128 characters at most.
        boot_seconds: when the source says it was observed, on the boot-time clock; None means now.
        over_seconds: the time before that of which the value is an average; 0 for one of a moment.
    """

    name: str
    value: float | None
    unit: str
    source: str
    quality: Quality = Quality.OK
    detail: str = ""
    boot_seconds: float | None = None
    over_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.value is None and self.quality is Quality.OK:
            raise ValueError(f"{self.name} of {self.source}: a missing value is not ok")
        object.__setattr__(self, "detail", self.detail[:LONGEST_DETAIL])


def missing(name: str, unit: str, source: str, quality: Quality, detail: str = "") -> Measurement:
    """A measurement without a value."""
    return Measurement(name, None, unit, source, quality, detail)


@dataclass(frozen=True)
class Reading:
    """A measurement with its time.

    Attributes:
        name, value, unit, source, quality, detail: as in `Measurement`.
        observed_at: the wall clock at the observation, for people.
        boot_seconds: the boot-time clock at the observation; it counts through sleep.
        stale_after_seconds: older than this it is no longer known.
        over_seconds: as in `Measurement`.
    """

    name: str
    value: float | None
    unit: str
    source: str
    quality: Quality
    observed_at: datetime
    boot_seconds: float
    stale_after_seconds: float
    detail: str = ""
    over_seconds: float = 0.0

    @property
    def key(self) -> str:
        """Signal and source: who bears witness to what."""
        return f"{self.name}@{self.source}"

    @property
    def known(self) -> bool:
        return self.quality is Quality.OK and self.value is not None

    def age_seconds(self, boot_now: float) -> float:
        return max(0.0, boot_now - self.boot_seconds)

    def at(self, boot_now: float) -> Reading:
        """The reading as it counts now: an old value is stale, and one from the future is suspect."""
        if self.quality is not Quality.OK:
            return self
        if self.boot_seconds - boot_now > FUTURE_SKEW_SECONDS:
            return replace(self, quality=Quality.SUSPECT, detail="observed in the future")
        if self.age_seconds(boot_now) > self.stale_after_seconds:
            return replace(self, quality=Quality.STALE)
        return self


# More than this ahead of our clock a source's time is wrong.
FUTURE_SKEW_SECONDS = 5.0
