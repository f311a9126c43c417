"""What the contract suite of the service managers needs to know of each of them."""

from __future__ import annotations

from typing import Protocol

from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.ports import ServiceManager
from tests.support.tiny_agent import TinyAgent


class ManagerBench(Protocol):
    """A service manager with one installed service, whose program is a `TinyAgent`.

    Attributes:
        manager: the adapter under test; its stop timeout is a second or so.
        agent: the program of the service.
    """

    manager: ServiceManager
    agent: TinyAgent

    def start(self) -> None:
        """Starts the service; returns at once."""
        ...

    def take_down(self) -> None:
        """Leaves the service as after a stop or in a back-off: no agent runs, and none will by itself."""
        ...

    def lie(self) -> None:
        """From now on what a restart asks for is answered with success and not done."""
        ...

    def close(self) -> None:
        """Leaves no process and no registration behind."""
        ...


class HastyClock(SystemClock):
    """The real clock, but that waits take a part of their time.

    Args:
        scale: real seconds for each second.
    """

    def __init__(self, scale: float) -> None:
        super().__init__()
        self._scale = scale

    def wait(self, seconds: float) -> None:
        super().wait(seconds * self._scale)
