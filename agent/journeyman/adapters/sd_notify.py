"""Tells the service manager how far the agent is: the protocol of sd_notify(3), without libsystemd.

Where nobody listens, as on macOS, under runit or in a terminal, nothing is sent.
"""

from __future__ import annotations

import socket
from collections.abc import MutableMapping

VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE = "WATCHDOG_USEC"
LONGEST_WAIT_SECONDS = 0.5


class SdNotify:
    """Sends to the socket that the manager named.

    Args:
        environ: the environment; its variables are taken out of it, so that no worker can speak for the
            agent.

    Attributes:
        watchdog_seconds: how long the manager waits for a sign of life before it kills us; None if it
            does not wait for any.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        name = environ.pop(VARIABLE, "")
        patience = environ.pop(WATCHDOG_VARIABLE, "")
        self.watchdog_seconds = int(patience) / 1e6 if patience.isdigit() and int(patience) else None
        # A leading @ stands for the zero byte of Linux' abstract namespace.
        self._address = "\0" + name[1:] if name.startswith("@") else name

    def ready(self, status: str) -> None:
        """The start is complete."""
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def stopping(self, status: str) -> None:
        """A stop has begun."""
        self._send(f"STOPPING=1\nSTATUS={_one_line(status)}")

    def alive(self) -> None:
        """Feeds the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        """The manager's absence never harms the agent, so errors end here."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(LONGEST_WAIT_SECONDS)
                sender.sendto(message.encode(), self._address)
        except OSError:
            return


def _one_line(text: str) -> str:
    return " ".join(text.split())
