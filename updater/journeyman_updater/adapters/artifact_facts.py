"""What an artifact on this host says of itself, for `apply FILE`; nothing of it is trusted before staging."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from pathlib import Path

from journeyman_updater.errors import Reason, RequestError
from journeyman_updater.model.manifest import MANIFEST_NAME, Manifest
from journeyman_updater.model.release import Sha256, UpdateRequest

_LONGEST_MANIFEST_BYTES = 16 * 1024**2


def request_for(artifact: Path) -> UpdateRequest:
    """The request that asks for an artifact which lies on this host.

    Raises:
        RequestError: BadRequest; it cannot be read, or is no release.
    """
    try:
        with artifact.open("rb") as file:
            sha256 = Sha256(hashlib.file_digest(file, "sha256").hexdigest())
        with tarfile.open(artifact, "r:gz") as archive:
            member = archive.extractfile(MANIFEST_NAME)
            manifest = Manifest.from_json(member.read(_LONGEST_MANIFEST_BYTES) if member else b"")
    except (OSError, KeyError, ValueError, EOFError, zlib.error, tarfile.TarError) as error:
        raise RequestError(
            Reason.BAD_REQUEST,
            f"{artifact} cannot be used as a release: {error}",
            "Give a tar.gz that scripts/release has built.",
        ) from error
    return UpdateRequest(manifest.version, artifact.resolve().as_uri(), sha256)
