"""The state document and the manifest: what is written is read, and what is damaged is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from journeyman_updater.model.manifest import Manifest, ManifestFile, Validity
from journeyman_updater.model.release import Slot, VersionId, parse_sha256
from journeyman_updater.model.state import REJECTIONS_KEPT, Rejection, Spec, StateDocument, Status

SHA = parse_sha256("ab" * 32)
SLOT = Slot(VersionId("v1.2.3+b"), SHA, "nonce", 7)
DOCUMENT = StateDocument(
    Spec("agentrelease", "1.2.3", "Sat 02:00-05:00", ("key",), 9.5),
    Status(SLOT, None, SLOT, (Rejection("1.0.0", "cd" * 32, "CrashLoop", "it ended"),), 7),
)
MANIFEST = Manifest(
    "journeyman", VersionId("1.2.3"), "linux", "amd64", 7, 1, "3.11", "3.14",
    {"bin/journeyman": ManifestFile(SHA, 3, executable=True)},
)  # fmt: skip


def test_documents_survive_a_round_trip() -> None:
    """State, manifest and validity record are read as they were written."""
    assert StateDocument.from_json(DOCUMENT.to_json()) == DOCUMENT
    assert Manifest.from_json(MANIFEST.to_json()) == MANIFEST
    assert Validity.from_json(Validity(SHA, SHA).to_json()) == Validity(SHA, SHA)


def test_fields_of_a_newer_writer_are_ignored() -> None:
    """Release N-1 reads what N writes."""
    value = json.loads(DOCUMENT.to_json())
    value["later"] = value["spec"]["later"] = value["status"]["later"] = value["status"]["active"][
        "later"
    ] = 1
    assert StateDocument.from_json(json.dumps(value).encode()) == DOCUMENT


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"spec": None},
        {"status": {}},
        {"status": {**json.loads(DOCUMENT.to_json())["status"], "active": {"version": "../x"}}},
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, Any]) -> None:
    """What is not whole is no state document, and raises nothing but ValueError."""
    value = {**json.loads(DOCUMENT.to_json()), **change}
    with pytest.raises(ValueError, match=r"state document|version"):
        StateDocument.from_json(json.dumps(value).encode())


@pytest.mark.parametrize("data", [b"", b"\0" * 50, b"[]", b"{", DOCUMENT.to_json()[:-9]])
def test_torn_documents_are_refused(data: bytes) -> None:
    """Empty, zeroed and cut files raise ValueError."""
    for kind in (StateDocument, Manifest, Validity):
        with pytest.raises(ValueError, match=r".*"):
            kind.from_json(data)


@pytest.mark.parametrize(
    "path", ["../x", "/x", "a//b", "a/./b", "", "a\0b", "manifest.json", "validity.json"]
)
def test_a_manifest_names_only_what_lies_inside(path: str) -> None:
    """A manifest cannot make the updater or the guard look outside of the tree."""
    value = json.loads(MANIFEST.to_json())
    value["files"][path] = value["files"]["bin/journeyman"]
    with pytest.raises(ValueError, match=r"tree|release"):
        Manifest.from_json(json.dumps(value).encode())


def test_rejections_are_kept_once_and_not_without_end() -> None:
    """The newest rejections stay, each release once; `allowing` removes one."""
    status = Status()
    for number in range(REJECTIONS_KEPT + 10):
        status = status.rejecting(Rejection("1.0.0", f"{number:064x}", "CrashLoop", ""))
    status = status.rejecting(Rejection("1.0.0", f"{50:064x}", "NotReady", ""))
    assert len(status.rejected) == REJECTIONS_KEPT
    assert status.rejected[-1].reason == "NotReady"
    assert not status.allowing(f"{50:064x}").has_rejected(f"{50:064x}")
