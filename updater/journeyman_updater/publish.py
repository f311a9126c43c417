"""What whoever publishes a release needs of the updater: the checks of a host, and the signature."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from journeyman_updater.adapters.exec_check import SubprocessExecCheck
from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.adapters.host_facts import this_host
from journeyman_updater.adapters.minisign import Signature
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.adapters.unpack import TarUnpacker
from journeyman_updater.core.fit import PRODUCT, check_expiry, check_product
from journeyman_updater.errors import Reason, UntrustedError, UpdaterError
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.manifest import Manifest
from journeyman_updater.model.release import Sha256
from journeyman_updater.ports import UnpackLimits
from journeyman_updater.steps.tree import read_manifest, verify_tree

# What callers need to speak of it.
__all__ = ["Candidate", "UpdaterError", "check_signature", "examine", "read", "sign"]


@dataclass(frozen=True)
class Candidate:
    """An artifact that hosts of its platform would take.

    Attributes:
        path: where it lies.
        size: in bytes.
        sha256: its identity.
        manifest: what it says of itself.
    """

    path: Path
    size: int
    sha256: Sha256
    manifest: Manifest

    def binding(self, *, sequence: int, expires: datetime) -> ReleaseBinding:
        """What a signature over it has to promise."""
        manifest = self.manifest
        return ReleaseBinding(
            product=manifest.product,
            os=manifest.os,
            arch=manifest.arch,
            version=manifest.version,
            sequence=sequence,
            size=self.size,
            sha256=self.sha256,
            expires=expires,
        )


def read(artifact: Path) -> Candidate:
    """Unpacks and verifies a release, and runs nothing of it.

    Raises:
        UpdaterError: each host would refuse it, for the same reason.
        OSError: it cannot be read, or there is no room to unpack it.
    """
    with _unpacked(artifact) as (candidate, _):
        return candidate


def examine(artifact: Path) -> Candidate:
    """As `read`; where the release is for this platform, it is also asked who it is, as each host will.

    Raises:
        UpdaterError: each host would refuse it, for the same reason.
        OSError: it cannot be read, or there is no room to unpack it.
    """
    host = this_host()
    with _unpacked(artifact) as (candidate, tree):
        manifest = candidate.manifest
        if (manifest.os, manifest.arch) == (host.os, host.arch):
            SubprocessExecCheck(SystemClock()).run(tree, product=PRODUCT, version=manifest.version)
        return candidate


@contextmanager
def _unpacked(artifact: Path) -> Iterator[tuple[Candidate, Path]]:
    with artifact.open("rb") as file:
        sha256 = Sha256(hashlib.file_digest(file, "sha256").hexdigest())
    files = RealFileSystem()
    with tempfile.TemporaryDirectory(prefix="journeyman-release-") as scratch:
        tree = Path(scratch)
        TarUnpacker(files).unpack(artifact, tree, UnpackLimits())
        manifest, _ = read_manifest(files, tree)
        check_product(manifest.product)
        verify_tree(files, tree, manifest)
        yield Candidate(artifact, artifact.stat().st_size, sha256, manifest), tree


def sign(candidate: Candidate, secret_key: str, *, sequence: int | None, expires: datetime) -> bytes:
    """Signs an artifact, and returns the content of its `.minisig` file.

    Args:
        candidate: the artifact.
        secret_key: the content of an unencrypted minisign secret key file.
        sequence: the order of releases; the manifest's own where it is None.
        expires: until when the signature permits an update; aware.

    Raises:
        RequestError: BadRequest; it is no such key.
    """
    number = candidate.manifest.sequence if sequence is None else sequence
    binding = candidate.binding(sequence=number, expires=expires)
    return SecretKey.parse(secret_key).sign(candidate.path, binding.to_comment())


def check_signature(candidate: Candidate, signature: bytes, now: datetime) -> ReleaseBinding:
    """Reads a signature that was made elsewhere, and compares what it promises with the artifact.

    Whether its key is trusted is for each host to say, by the keys that are pinned there.

    Raises:
        UpdaterError: it is none, has expired, or is of another artifact.
    """
    found = ReleaseBinding.from_comment(Signature.parse(signature).comment)
    check_expiry(found, now=now)
    if found != candidate.binding(sequence=found.sequence, expires=found.expires):
        raise UntrustedError(
            Reason.BAD_SIGNATURE,
            f"the signature beside {candidate.path.name} was made for another artifact, version or platform",
            "Sign it again with `scripts/release sign`, or remove the .minisig file.",
        )
    return found
