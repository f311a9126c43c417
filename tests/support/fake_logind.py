"""A bus of our own by a real dbus-daemon, on it locks and signals as org.freedesktop.login1(5) has them."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jeepney import (
    DBusAddress,
    HeaderFields,
    Message,
    MessageType,
    message_bus,
    new_error,
    new_method_return,
    new_signal,
)
from jeepney.fds import FileDescriptor
from jeepney.io.blocking import open_dbus_connection

from tests.support.debian import ensure_debian_package
from tests.support.waiting import eventually

SERVICE = "org.freedesktop.login1"
MANAGER = DBusAddress("/org/freedesktop/login1", SERVICE, f"{SERVICE}.Manager")
PURPOSES = {"PrepareForSleep": "sleep", "PrepareForShutdown": "shutdown"}
"""What is asked for by anybody; with polkit both in one are for administrators."""
# Logind waits for five; a loaded machine may need longer.
DELAY_SECONDS = 30.0


@contextmanager
def running_bus(folder: Path) -> Iterator[str]:
    """The address of a bus that lasts as long as the block."""
    path = folder / "bus"
    command = [ensure_debian_package("dbus-daemon"), "--session", "--nofork", f"--address=unix:path={path}"]
    with subprocess.Popen(command) as daemon:
        try:
            # The socket is there a moment before anybody listens on it.
            eventually(lambda: _takes_calls(path))
            yield f"unix:path={path}"
        finally:
            daemon.terminate()


def _takes_calls(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0


class FakeLogind(threading.Thread):
    """Owns the name of logind on a bus, gives locks, and waits for them before it goes.

    Args:
        bus: its address.
        name: what it owns; another one is somebody who only pretends.
        refuses: whether it gives no locks.
    """

    def __init__(self, bus: str, *, name: str = SERVICE, refuses: bool = False) -> None:
        super().__init__(daemon=True)
        self._connection = open_dbus_connection(bus, enable_fds=True)
        self._connection.send_and_get_reply(message_bus.RequestName(name))
        self._refuses = refuses
        self._ends: list[tuple[str, int]] = []
        self._given = threading.Semaphore(0)
        self.asked: list[tuple[str, ...]] = []
        self.was_asked = threading.Event()
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                message = self._connection.receive()
                is_call = message.header.message_type is MessageType.method_call
                if is_call and message.header.fields.get(HeaderFields.member) == "Inhibit":
                    self._inhibit(message)

    def _inhibit(self, message: Message) -> None:
        self.asked.append(message.body)
        self.was_asked.set()
        if self._refuses or message.body[0] not in PURPOSES.values():
            denied = "org.freedesktop.DBus.Error.AccessDenied"
            self._connection.send(new_error(message, denied, "s", ("Access denied",)))
            return
        ours, theirs = os.pipe()
        with FileDescriptor(theirs) as lock:
            self._connection.send(new_method_return(message, "h", (lock,)))
        self._ends.append((message.body[0], ours))
        self._given.release()

    def wait_for_locks(self, number: int = 2) -> None:
        """Returns once so many more locks were given; one for each purpose at first."""
        for _ in range(number):
            assert self._given.acquire(timeout=30)

    def locks(self) -> list[str]:
        """The purposes of the locks that are held: the far end of one that was let go of is closed."""
        return sorted(why for why, end in self._ends if not select.select([end], [], [], 0)[0])

    def say(self, signal: str, *, going: bool) -> None:
        """Sends one of the two signals."""
        self._connection.send(new_signal(MANAGER, signal, "b", (going,)))

    def go(self, signal: str = "PrepareForSleep") -> bool:
        """Says so, and waits for the locks of that purpose; returns whether they were let go of in time."""
        self.say(signal, going=True)
        waited = [end for why, end in self._ends if why == PURPOSES[signal]]
        return all(select.select([end], [], [], DELAY_SECONDS)[0] for end in waited)

    def close(self) -> None:
        """Leaves the bus."""
        self._connection.close()
        for _, end in self._ends:
            os.close(end)
