"""What the proxy is told, as it lies in its worker's folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Self

from journeyman.core.proxy.reach import Reach

LISTEN_HOST = "127.0.0.1"
# Next to the embedded plane's 6480.
USUAL_PORT = 6481
MIB = 1024 * 1024
# Where the agent hears for which sleeping models requests are held, and how long it may have to wait there.
WANTED_PATH = "/wanted"
NO_NEWS_SECONDS = 60.0


@dataclass(frozen=True)
class Keys:
    """What clients have to show.

    Attributes:
        here: those of this machine.
        elsewhere: those of others; empty where there are none, or where they need none.
    """

    here: bytes
    elsewhere: bytes = b""

    def digest(self) -> str:
        """SHA-256 of both, so that another key is another configuration."""
        return hashlib.sha256(self.here + b"\n" + self.elsewhere).hexdigest()


@dataclass(frozen=True)
class ProxyConfig:
    """Where it listens and what it puts up with.  Lives in `config.json`; fields are only added.

    Attributes:
        port: on 127.0.0.1; 0 takes a free one.
        any_port: whether a free port will do where that one is taken.
        port_patience_seconds: how long a port that is taken is waited for: a predecessor may be leaving it.
        hold_seconds: how long a request waits for a model that is starting.
        queue_limit: how many requests for one model wait for their turn; the next one gets 429.
        stall_seconds: the longest silence of a server or of a client that does not read.
        tail_seconds: the longest silence after the model's last word.
        head_seconds: the longest wait for the head of a request, and for the next part of its body.
        body_limit_bytes: the largest body of a request.
        connection_limit: how many clients may be connected at a time.
        key_digest: that of its keys.
        version: of the release that it belongs to.
        reach: where it listens for other machines; None where it does not.
    """

    port: int = 0
    any_port: bool = True
    port_patience_seconds: float = 0.0
    hold_seconds: float = 120.0
    queue_limit: int = 64
    stall_seconds: float = 600.0
    tail_seconds: float = 5.0
    head_seconds: float = 75.0
    body_limit_bytes: int = 32 * MIB
    connection_limit: int = 1024
    key_digest: str = ""
    version: str = ""
    reach: Reach | None = None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Reads what `to_json` wrote.  Raises ValueError: it is no configuration."""
        try:
            fields = json.loads(data)
            reach = fields.pop("reach", None)
            return cls(**fields, reach=None if reach is None else Reach.from_fields(reach))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"no configuration of a proxy: {error}") from error

    def on_port(self, port: int, *, any_port: bool, patience_seconds: float) -> Self:
        """The same, on that port."""
        return replace(self, port=port, any_port=any_port, port_patience_seconds=patience_seconds)
