"""Reads what identifies this machine, and keeps the identity of this installation on disk."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import structlog

from journeyman.core.node_name import IdentityChange, NodeIdentity, identify
from journeyman.ports import Document

log = structlog.get_logger(__name__)

# Files that identify a Linux machine.  The serial number tells two boards apart whose cards hold one image.
LINUX_FACTS = {
    "machine-id": "etc/machine-id",
    "board-serial": "proc/device-tree/serial-number",
    "product-uuid": "sys/class/dmi/id/product_uuid",
}


@dataclass(frozen=True)
class HostFacts:
    """The host name, and the raw facts that identify the machine."""

    hostname: str
    machine: dict[str, str]


def read_host_facts(
    filesystem: Path = Path("/"), *, platform: str = sys.platform, probe_timeout_seconds: float = 3
) -> HostFacts:
    """Reads the facts; one that cannot be read is left out.

    Args:
        filesystem: the root of the file system; tests hand in a folder.
        platform: `sys.platform`.
        probe_timeout_seconds: how long a program that is asked may take.
    """
    if platform == "darwin":
        machine = _darwin_facts(probe_timeout_seconds)
    else:
        machine = {name: _text(filesystem / path) for name, path in LINUX_FACTS.items()}
    return HostFacts(socket.gethostname(), {name: value for name, value in machine.items() if value})


def establish_identity(document: Document, facts: HostFacts) -> NodeIdentity:
    """Returns the identity of this installation; a new or changed one is durable before it is returned.

    Args:
        document: where it is kept, `identity.json` in the state root.
        facts: of this machine.

    Raises:
        HostError: the document cannot be written.
    """
    stored = document.load()
    recorded = None if stored is None else NodeIdentity.from_json(stored)
    identity, change = identify(recorded, facts.hostname, facts.machine, secrets.token_hex(16))
    if change is IdentityChange.CLONED and recorded is not None:
        log.warning(
            "cloned_state_root_found", previous_node_name=recorded.node_name, node_name=identity.node_name
        )
    if identity != recorded:
        document.save(identity.to_json())
    return identity


def _text(path: Path) -> str:
    try:
        # A device tree ends its strings with a zero byte.
        return path.read_bytes().decode(errors="replace").strip("\x00 \n")
    except OSError:
        return ""


def _darwin_facts(timeout_seconds: float) -> dict[str, str]:
    try:
        shown = subprocess.run(
            ["/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice"],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    for line in shown.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == '"IOPlatformUUID"':
            return {"platform-uuid": value.strip().strip('"')}
    return {}
