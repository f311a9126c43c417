"""Join tokens and the credentials of nodes: their text, and the Secrets that know them by their hash.

    join.<id>.<secret>      admits one node, once, until it expires; minted by the admin
    node.<name>.<secret>    what that node then says with each request; chosen by the node

The node chooses its credential, so that it has it on disk before it asks: an answer that got lost is asked
for again.  Each is a Secret in `foreman-system` with a SHA-256 in place of the secret, so the admin lists and
revokes them with kubectl, and a copy of the database admits nobody.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from journeyman.model.meta import format_time
from journeyman_plane.ports import Key

NAMESPACE = "foreman-system"
JOIN_TYPE = "journeyman.dev/join-token"
NODE_TYPE = "journeyman.dev/node-credential"
NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# 32 bytes in URL-safe base64, which no one guesses: a plain hash is then as good as a slow one.
_SECRET = re.compile(r"[-_A-Za-z0-9]{43,128}")


@dataclass(frozen=True)
class Credential:
    """A token taken apart.

    Attributes:
        kind: `join` or `node`.
        name: the id of a join token, or the name of a FleetNode.
        secret: what only its owner knows.
    """

    kind: str
    name: str
    secret: str

    @property
    def key(self) -> Key:
        """Where the Secret that knows it is kept."""
        return Key("", "secrets", NAMESPACE, f"{self.kind}-{self.name}")

    @property
    def text(self) -> str:
        """The token."""
        return f"{self.kind}.{self.name}.{self.secret}"

    def to_secret(self, *, expires: datetime | None = None, bound_to: str = "") -> dict[str, Any]:
        """The Secret to store.

        Args:
            expires: of a join token.
            bound_to: the only node that a join token admits; empty for any.
        """
        facts = {"sha256": _digest(self.secret), "node": bound_to if expires else self.name}
        if expires:
            facts["expires"] = format_time(expires)
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.key.name, "namespace": NAMESPACE},
            "type": JOIN_TYPE if self.kind == "join" else NODE_TYPE,
            "data": {name: base64.b64encode(value.encode()).decode() for name, value in facts.items()},
        }

    def is_known_by(self, stored: Mapping[str, Any]) -> bool:
        """Whether that Secret is of this token; takes as long for a wrong one as for a right one."""
        known = fact(stored, "sha256")
        kind = JOIN_TYPE if self.kind == "join" else NODE_TYPE
        return stored.get("type") == kind and hmac.compare_digest(
            known.encode(), _digest(self.secret).encode()
        )


def parse(text: str, kind: str) -> Credential | None:
    """The parts of a token of that kind; None if it is none."""
    parts = text.split(".")
    if len(parts) != 3 or parts[0] != kind:  # noqa: PLR2004  # kind, name, secret
        return None
    if not NODE_NAME.fullmatch(parts[1]) or not _SECRET.fullmatch(parts[2]):
        return None
    return Credential(*parts)


def fact(stored: Mapping[str, Any], name: str) -> str:
    """One of the facts that `to_secret` has stored; empty if it is not there."""
    try:
        return base64.b64decode((stored.get("data") or {}).get(name, "")).decode()
    except ValueError:
        return ""


def has_expired(stored: Mapping[str, Any], now: datetime) -> bool:
    """Whether a join token is too old; one without a readable time is."""
    try:
        return now >= datetime.fromisoformat(fact(stored, "expires"))
    except ValueError:
        return True


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
