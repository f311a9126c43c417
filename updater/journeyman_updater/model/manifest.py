"""`manifest.json` of a release: what its tree must look like, and what it needs of the host.

It is made when the release is built, lies at the top of the tree, and does not list itself.  `validity.json`
beside it is written by the updater as the last act of staging and says: this tree was found to match.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from journeyman_updater.model.release import Sha256, VersionId, parse_sha256

MANIFEST_NAME = "manifest.json"
VALIDITY_NAME = "validity.json"
ENTRY_POINT = "bin/journeyman"
FORMAT_VERSION = 1

_PYTHON = re.compile(r"3\.\d{1,3}")


@dataclass(frozen=True)
class ManifestFile:
    """One regular file of the tree.

    Attributes:
        sha256: of its content.
        size: in bytes.
        executable: whether its mode is 0755 rather than 0644.
    """

    sha256: Sha256
    size: int
    executable: bool = False


@dataclass(frozen=True)
class Manifest:
    """What a release is.

    Attributes:
        product: `journeyman`.
        version: as the release names itself.
        os: `linux` or `darwin`.
        arch: `amd64` or `arm64`.
        sequence: grows with each signed release; stops replays.
        guard_protocol: 1 or more if the agent ends the guard's alarm at READY.
        python_min: the first CPython it runs on, like `3.11`.
        python_max: the last CPython it runs on, like `3.14`.
        files: path below the tree, with `/`, to the file's facts.
        unit_protocol: 1 or more if `update unit` says how the service manager starts the agent.
    """

    product: str
    version: VersionId
    os: str
    arch: str
    sequence: int
    guard_protocol: int
    python_min: str
    python_max: str
    files: dict[str, ManifestFile]
    unit_protocol: int = 0

    def to_json(self) -> bytes:
        """Deterministic: sorted keys, one line."""
        value = {"format": FORMAT_VERSION, **asdict(self), "version": self.version.spelled}
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: it is not a manifest, or one of its paths leads out of the tree.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("format") != FORMAT_VERSION:
            raise ValueError(f"not a manifest in format {FORMAT_VERSION}")
        try:
            files = {_inside(path): _file(facts) for path, facts in value["files"].items()}
            for name in ("python_min", "python_max"):
                if not _PYTHON.fullmatch(value[name]):
                    raise ValueError(f"{name} is no Python version")
            if ENTRY_POINT not in files:
                raise ValueError(f"no {ENTRY_POINT}")
            return cls(
                product=str(value["product"]),
                version=VersionId(value["version"]),
                os=str(value["os"]),
                arch=str(value["arch"]),
                sequence=int(value["sequence"]),
                guard_protocol=int(value["guard_protocol"]),
                python_min=value["python_min"],
                python_max=value["python_max"],
                files=files,
                # Releases from before it say nothing, and are asked nothing.
                unit_protocol=int(value.get("unit_protocol", 0)),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a manifest: {error!r}") from error


def _inside(path: str) -> str:
    parts = path.split("/")
    if not path or "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"{path[:80]!r} does not lie inside the tree")
    if path in {MANIFEST_NAME, VALIDITY_NAME}:
        raise ValueError(f"{path} is not a file of the release")
    return path


def _file(facts: dict[str, Any]) -> ManifestFile:
    return ManifestFile(parse_sha256(facts["sha256"]), int(facts["size"]), bool(facts["executable"]))


@dataclass(frozen=True)
class Validity:
    """Says that a tree was verified and flushed.

    Attributes:
        sha256: of the artifact.
        manifest_sha256: of `manifest.json`.
    """

    sha256: Sha256
    manifest_sha256: Sha256

    def to_json(self) -> bytes:
        return json.dumps({"format": FORMAT_VERSION, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Validity:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: it is not a validity record.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("format") != FORMAT_VERSION:
            raise ValueError(f"not a validity record in format {FORMAT_VERSION}")
        try:
            return cls(parse_sha256(value["sha256"]), parse_sha256(value["manifest_sha256"]))
        except (KeyError, AttributeError) as error:
            raise ValueError(f"not a validity record: {error!r}") from error
