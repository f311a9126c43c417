"""Which addresses this host has at this moment."""

from __future__ import annotations

import socket


def has_address(address: str) -> bool:
    """Whether it is one of this host; that of a VPN comes and goes, and a socket that listens there stays."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
