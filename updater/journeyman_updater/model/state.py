"""`state.json`: one atomic document, the operator's `spec` beside the updater's `status`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from journeyman_updater.model.release import Slot, VersionId, parse_sha256

FORMAT_VERSION = 1
REJECTIONS_KEPT = 200
"""A fleet that sees more bad releases than this has other worries; the journal keeps them all."""


@dataclass(frozen=True)
class Spec:
    """What people decided at this host.

    Attributes:
        source: where requests come from: `off`, `agentrelease`.
        pin: the one version that may run, canonical, or None.
        window: when an update may start by itself, like `Sat,Sun 02:00-05:00`, or None for always.
        keys: minisign public keys that may sign a release.
        ready_seconds: how long a release on trial may take to become READY; the guard's alarm.
    """

    source: str = "off"
    pin: str | None = None
    window: str | None = None
    keys: tuple[str, ...] = ()
    ready_seconds: float = 15.0


@dataclass(frozen=True)
class Rejection:
    """A release that was tried and failed by itself.  It outlives the release's files.

    Attributes:
        version: as the request spelled it.
        sha256: of the artifact.
        reason: a reason code.
        evidence: one line for people.
    """

    version: str
    sha256: str
    reason: str
    evidence: str


@dataclass(frozen=True)
class Undone:
    """A release that was tried and undone by no fault of its own, while the request for it stands.

    Attributes:
        version: as the request spelled it.
        sha256: of the artifact.
        reason: the reason code of the last time.
        times: how often.
        boot_id: of the boot in which it was undone last.
        mono_ns: the monotonic clock of that boot then.
    """

    version: str
    sha256: str
    reason: str
    times: int
    boot_id: str
    mono_ns: int


@dataclass(frozen=True)
class Status:
    """What the updater knows.

    Attributes:
        active: the release that has proven itself and runs whenever nothing else is said.
        previous: the one before it.
        trial: one that runs uncommitted, or None.
        rejected: never to be tried again, oldest first.
        sequence: the highest signed sequence that was ever committed; a lower one is a replay.
        undone: what may be tried again, see `core/repeats.py`.
    """

    active: Slot | None = None
    previous: Slot | None = None
    trial: Slot | None = None
    rejected: tuple[Rejection, ...] = ()
    sequence: int = 0
    undone: tuple[Undone, ...] = ()

    def has_rejected(self, sha256: str) -> bool:
        return any(item.sha256 == sha256 for item in self.rejected)

    def rejecting(self, rejection: Rejection) -> Status:
        """The same with one more rejection."""
        others = tuple(item for item in self.rejected if item.sha256 != rejection.sha256)
        return replace(self, rejected=(*others, rejection)[-REJECTIONS_KEPT:])

    def allowing(self, sha256: str) -> Status:
        """The same, with nothing held against that release."""
        rejected = tuple(item for item in self.rejected if item.sha256 != sha256)
        return replace(self, rejected=rejected, undone=self.others_undone(sha256))

    def undone_of(self, sha256: str) -> Undone | None:
        """How that release was undone, if it was."""
        return next((item for item in self.undone if item.sha256 == sha256), None)

    def others_undone(self, sha256: str) -> tuple[Undone, ...]:
        """All but that release."""
        return tuple(item for item in self.undone if item.sha256 != sha256)

    def undoing(self, slot: Slot, reason: str, boot_id: str, mono_ns: int) -> Status:
        """The same after that release was undone once more."""
        before = self.undone_of(slot.sha256)
        times = before.times + 1 if before else 1
        undone = Undone(slot.version.spelled, slot.sha256, reason, times, boot_id, mono_ns)
        return replace(self, undone=(*self.others_undone(slot.sha256), undone)[-REJECTIONS_KEPT:])

    def slots(self) -> tuple[Slot, ...]:
        """All releases that it names."""
        return tuple(slot for slot in (self.active, self.previous, self.trial) if slot)


@dataclass(frozen=True)
class StateDocument:
    """The whole file."""

    spec: Spec = field(default_factory=Spec)
    status: Status = field(default_factory=Status)

    def to_json(self) -> bytes:
        status = {
            **asdict(self.status),
            "active": _from_slot(self.status.active),
            "previous": _from_slot(self.status.previous),
            "trial": _from_slot(self.status.trial),
        }
        value = {"version": FORMAT_VERSION, "spec": asdict(self.spec), "status": status}
        return json.dumps(value, sort_keys=True, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> StateDocument:
        """Reads what `to_json` wrote; unknown fields of a newer writer are ignored.

        Raises:
            ValueError: it is not a state document, or one of another format.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("version") != FORMAT_VERSION:
            raise ValueError(f"not a state document in format {FORMAT_VERSION}")
        try:
            spec, status = value["spec"], value["status"]
            return cls(
                Spec(
                    spec["source"],
                    spec["pin"],
                    spec["window"],
                    tuple(spec["keys"]),
                    float(spec["ready_seconds"]),
                ),
                Status(
                    active=_to_slot(status["active"]),
                    previous=_to_slot(status["previous"]),
                    trial=_to_slot(status["trial"]),
                    rejected=tuple(
                        Rejection(*(str(item[name]) for name in ("version", "sha256", "reason", "evidence")))
                        for item in status["rejected"]
                    ),
                    sequence=int(status["sequence"]),
                    # An updater from before it writes none.
                    undone=tuple(_to_undone(item) for item in status.get("undone", ())),
                ),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a state document: {error!r}") from error


def _to_undone(value: dict[str, Any]) -> Undone:
    return Undone(
        version=str(value["version"]),
        sha256=str(value["sha256"]),
        reason=str(value["reason"]),
        times=int(value["times"]),
        boot_id=str(value["boot_id"]),
        mono_ns=int(value["mono_ns"]),
    )


def _from_slot(slot: Slot | None) -> dict[str, Any] | None:
    if slot is None:
        return None
    # The folder is written out so that the guard need not know how it is made.
    return {
        "version": slot.version.spelled,
        "sha256": slot.sha256,
        "nonce": slot.nonce,
        "sequence": slot.sequence,
        "folder": slot.folder,
    }


def _to_slot(value: dict[str, Any] | None) -> Slot | None:
    if value is None:
        return None
    version, sha256 = VersionId(value["version"]), parse_sha256(value["sha256"])
    return Slot(version, sha256, str(value["nonce"]), int(value["sequence"]))
