"""Releases in the bottle, and the agents that they become."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from journeyman_updater.contract import ProcessIdentity
from journeyman_updater.model.release import Sha256, Slot, UpdateRequest, VersionId

BROKEN_UNIT = b"names a program that does not exist"


@dataclass(frozen=True)
class Release:
    """An artifact and how it behaves once it runs.

    Attributes:
        version: what it is called.
        archive: its bytes.
        behaviour: `good`, `crash`, `hang`, `late` (dies after READY), `mute` (never attempts a heartbeat),
            `stuck` (its loops die after a few) or `unstartable` (its unit starts nothing).
        sequence: under which it is signed.
    """

    version: str
    archive: bytes
    behaviour: str = "good"
    sequence: int = 1

    @property
    def unit(self) -> bytes:
        """By what the service manager starts it."""
        broken = BROKEN_UNIT if self.behaviour == "unstartable" else b""
        return f"a unit that came with {self.version}\n".encode() + broken

    @property
    def sha256(self) -> Sha256:
        return Sha256(hashlib.sha256(self.archive).hexdigest())

    @property
    def slot(self) -> Slot:
        return Slot(VersionId(self.version), self.sha256, f"nonce-of-{self.version}", self.sequence)

    def request(self) -> UpdateRequest:
        return UpdateRequest(VersionId(self.version), f"https://releases.example/{self.sha256}", self.sha256)


@dataclass
class Agent:
    """A process of a release."""

    identity: ProcessIdentity
    release: Release
    nonce: str
    started: float
    alarm: float
    unit: bytes
    beats: int = 0
