"""Sleep and shutdown by systemd-logind: its delay lock, and the two signals that it sends to everybody.

The interface is org.freedesktop.login1.Manager, whose documentation is org.freedesktop.login1(5).  jeepney is
pure Python, so it needs no compiler anywhere.  While a lock is held logind waits, for InhibitDelayMaxSec (5
seconds) at most.  One lock a purpose is asked for: both in one are for administrators alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog
from jeepney import DBusAddress, HeaderFields, MatchRule, Message, MessageType, message_bus, new_method_call
from jeepney.auth import AuthenticationError
from jeepney.fds import FileDescriptor
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from journeyman.errors import HostError
from journeyman.model.power import Going

log = structlog.get_logger(__name__)

SERVICE, INTERFACE = "org.freedesktop.login1", "org.freedesktop.login1.Manager"
MANAGER = DBusAddress("/org/freedesktop/login1", SERVICE, INTERFACE)
SIGNALS = {"PrepareForSleep": Going.SLEEP, "PrepareForShutdown": Going.SHUTDOWN}
WHO_WHY_HOW = ("Journeyman", "says good-bye to its control plane", "delay")
USUAL_BUS = Path("/run/dbus/system_bus_socket")
ADDRESS = "DBUS_SYSTEM_BUS_ADDRESS"
# What the library raises for a bus that breaks off, or says what nobody can read.
_FAILURES = (OSError, EOFError, AuthenticationError, RuntimeError, ValueError, LookupError, struct.error)


def has_system_bus() -> bool:
    """Whether this host has a bus on which logind could be."""
    return bool(os.environ.get(ADDRESS)) or USUAL_BUS.exists()


class LogindPower:
    """Implements the port PowerEvents.

    Args:
        timeout_seconds: for each answer of bus and logind.
        bus: the address of the bus, as D-Bus spells it; SYSTEM is the one of this host.
    """

    def __init__(self, *, timeout_seconds: float, bus: str = "SYSTEM") -> None:
        self._timeout_seconds = timeout_seconds
        self._bus = bus

    async def listen(self, going: Callable[[Going], Awaitable[None]], back: Callable[[], None]) -> None:
        """See the port."""
        try:
            connection = await asyncio.to_thread(
                open_dbus_connection, self._bus, enable_fds=True, auth_timeout=self._timeout_seconds
            )
        except _FAILURES as error:
            raise HostError(f"the system bus does not answer: {error}") from error
        bus = _Bus(connection, self._timeout_seconds)
        try:
            await self._follow(bus, going, back)
        except _FAILURES as error:
            raise HostError(f"logind can no longer be heard: {error}") from error
        finally:
            bus.close()

    async def _follow(
        self, bus: _Bus, going: Callable[[Going], Awaitable[None]], back: Callable[[], None]
    ) -> None:
        for signal in SIGNALS:
            rule = MatchRule(type="signal", sender=SERVICE, interface=INTERFACE, member=signal)
            await bus.call(message_bus.AddMatch(rule))
        with contextlib.ExitStack() as held:
            locks = {why: held.enter_context(_Lock(why)) for why in SIGNALS.values()}
            for lock in locks.values():
                await lock.take(bus)
            while True:
                member, is_going = await bus.next_signal()
                if is_going:
                    await going(SIGNALS[member])
                    locks[SIGNALS[member]].close()
                else:
                    back()
                    await locks[SIGNALS[member]].take(bus)


class _Lock(contextlib.AbstractContextManager["_Lock"]):
    """The delay lock for one purpose."""

    def __init__(self, why: Going) -> None:
        self._why = why
        self._held: FileDescriptor | None = None

    async def take(self, bus: _Bus) -> None:
        """Without it we are still told, and may be too late."""
        if self._held is not None:
            return
        arguments = (self._why.value, *WHO_WHY_HOW)
        reply = await bus.call(new_method_call(MANAGER, "Inhibit", "ssss", arguments), must=False)
        if reply is None:
            log.warning("delay_lock_refused", purpose=self._why.value)
        else:
            self._held = reply[0]

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def __exit__(self, *_: object) -> None:
        self.close()


class _Bus:
    """One connection, of which asyncio waits for each message."""

    def __init__(self, connection: DBusConnection, timeout_seconds: float) -> None:
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._signals: deque[Message] = deque()

    def close(self) -> None:
        self._connection.close()

    async def call(self, message: Message, *, must: bool = True) -> tuple[Any, ...] | None:
        """The body of the reply; None for an error, if it need not succeed.

        Raises:
            TimeoutError: no reply came in time.
            RuntimeError: the reply is an error.
        """
        serial = next(self._connection.outgoing_serial)
        self._connection.send(message, serial=serial)
        async with asyncio.timeout(self._timeout_seconds):
            while True:
                found = await self._receive()
                if found.header.fields.get(HeaderFields.reply_serial) == serial:
                    break
                self._signals.append(found)
        if found.header.message_type is not MessageType.error:
            body: tuple[Any, ...] = found.body
            return body
        if must:
            raise RuntimeError(f"{found.header.fields.get(HeaderFields.error_name)}: {found.body}")
        return None

    async def next_signal(self) -> tuple[str, bool]:
        """The next word of logind itself: which signal, and whether the host goes."""
        while True:
            found = self._signals.popleft() if self._signals else await self._receive()
            fields = found.header.fields
            member = str(fields.get(HeaderFields.member))
            if found.header.message_type is not MessageType.signal or member not in SIGNALS:
                continue
            # Anybody on the bus may send a signal of that name.
            owner = await self.call(message_bus.GetNameOwner(SERVICE), must=False)
            if owner is not None and fields.get(HeaderFields.sender) == owner[0]:
                return member, bool(found.body[0])

    async def _receive(self) -> Message:
        while True:
            try:
                return self._connection.receive(timeout=0)
            except TimeoutError:
                await _readable(self._connection.sock.fileno())


async def _readable(descriptor: int) -> None:
    """Returns once there is something to read."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
