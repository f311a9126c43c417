"""What is asked of a join, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from journeyman.settings import Settings

Say = Callable[[str], None]


@dataclass(frozen=True)
class JoinRequest:
    """What a person wants.

    Attributes:
        settings: of the state root, as they are before the join; timeouts and gates are kept.
        server: the URL of the control plane; empty where the settings name a kubeconfig.
        token_file: with a join token of a plane, with the token of this node's ServiceAccount, or with one
            that may ask for a certificate.
        ca_file: PEM file of the server's CA.
        ca_hash: the SHA-256 of its certificate, for a CA that the plane itself hands out.
        name: of the FleetNode; empty for the one that is made of the host name.
        labels: of the FleetNode.
        roles: of the FleetNode.
        namespaces: whose tasks it takes; empty for those of the settings.
        by_certificate: whether to ask for a client certificate with that token.
        wait_seconds: how long at most to wait until that is approved.
        trust: asked with the hash of a CA that nobody has vouched for; whether to go on.
    """

    settings: Settings
    server: str
    token_file: Path | None
    ca_file: Path | None = None
    ca_hash: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    by_certificate: bool = False
    wait_seconds: float = 600.0
    trust: Callable[[str], bool] = lambda _: False


@dataclass(frozen=True)
class Joined:
    """What this machine is now.

    Attributes:
        name: of its FleetNode.
        server: the control plane.
        kind: `plane` or `cluster`.
        ca_hash: of the CA that is trusted from now on; empty for one of this system.
        files: what was written.
    """

    name: str
    server: str
    kind: str
    ca_hash: str
    files: list[str]
