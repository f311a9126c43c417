"""The machine: what it has, what it senses, when it sleeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from journeyman.model.power import Going
from journeyman.model.readings import Measurement


@dataclass(frozen=True)
class Memory:
    """The memory of the host, in bytes."""

    total_bytes: int
    available_bytes: int


class HostProbe(Protocol):
    """Facts about this machine that do not change while the agent runs, and its memory, which does."""

    def os(self) -> str:
        """`darwin` or `linux`, in Go's vocabulary."""
        ...

    def arch(self) -> str:
        """`amd64` or `arm64` where it is one of these, in Go's vocabulary."""
        ...

    def memory(self) -> Memory:
        """Memory now."""
        ...

    def accelerator(self) -> str:
        """`metal`, `cuda`, `vulkan` or `none`, the best one that is usable here."""
        ...


class Sensor(Protocol):
    """One source of facts about the host, such as a folder of sysfs or a program that prints them."""

    @property
    def name(self) -> str:
        """What it is called in logs, such as `power_supply`."""
        ...

    @property
    def period_seconds(self) -> float:
        """How often it is worth asking; after three periods its readings are stale."""
        ...

    def read(self) -> Sequence[Measurement]:
        """Asks once, blocking, within the sensor's own deadline.  Never raises.

        What cannot be read is a measurement without a value that says why; one bad part of a source never
        hides the others.  No two calls overlap.
        """
        ...


class PowerEvents(Protocol):
    """What the host says before it sleeps or shuts down, and when it is back."""

    async def listen(self, going: Callable[[Going], Awaitable[None]], back: Callable[[], None]) -> None:
        """Listens until it is cancelled; the host waits for `going`, for as long as it waits for anybody.

        Args:
            going: is run before the host goes, and bounds itself.
            back: is called when the host is back, or stays after all.

        Raises:
            HostError: nothing can be heard, or no longer.
        """
        ...


class SleepAssertion(Protocol):
    """Keeps the host awake.  It ends by itself with the process that holds it, however that ends."""

    def hold(self) -> None:
        """Asks the host to stay awake; nothing more where it was asked already.  Returns at once."""
        ...

    def release(self) -> None:
        """Lets the host sleep, at once; nothing happens where it may."""
        ...

    def is_held(self) -> bool:
        """Whether the host keeps awake for us at this moment."""
        ...
