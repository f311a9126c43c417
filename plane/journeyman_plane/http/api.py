"""What all handlers share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from journeyman_plane.core.admission import Admission
from journeyman_plane.model.resource import Registry
from journeyman_plane.ports import Artifacts, Clock, Store


@dataclass
class Api:
    """The parts that handlers need, and the little state that they share.

    Attributes:
        registry: what is served.
        admission: what may be stored.
        store: where it is stored.
        artifacts: releases that hosts fetch from here.
        clock: for ages and for the times of the plane's own objects.
        version: the version of the program, for `/version`.
        largest_body_bytes: requests with a larger body are refused.
        bookmark_seconds: how often a quiet watch is told how far it has seen.
        longest_watch_seconds: a watch ends after this time, or sooner where its client asks for it.
        release_public_key: in minisign's format; each node is given it when it joins.
        ca_file: the certificate of the CA; None without TLS.
        requests: how often each (verb, resource) was asked for.
        received_bytes: what came with these requests.
        sent_bytes: what went back, watches included.
        stopping: set when the plane stops; watches end when they see it.
    """

    registry: Registry
    admission: Admission
    store: Store
    artifacts: Artifacts
    clock: Clock
    version: str
    largest_body_bytes: int
    bookmark_seconds: float
    longest_watch_seconds: float
    release_public_key: str
    ca_file: Path | None
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    received_bytes: int = 0
    sent_bytes: int = 0
    stopping: bool = False
