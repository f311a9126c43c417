"""Small releases: good ones with the real format, and archives that no honest tool would make."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from journeyman_updater import guard, parent
from journeyman_updater.adapters.host_facts import this_host
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.adapters.pack import pack
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.manifest import ENTRY_POINT, MANIFEST_NAME, Manifest, ManifestFile
from journeyman_updater.model.release import Sha256, VersionId

# Says who it is in the way of the real entry point, with nothing but a shell.
SPEAKING = """#!/bin/sh
echo '{{"product": "{product}", "version": "{version}"}}'
"""


@dataclass(frozen=True)
class SmallRelease:
    """A release that fits this host, unless it is made otherwise.

    Attributes:
        version: what it and its manifest say.
        program: the content of its entry point; None for one that answers the exec check.
        product, os, arch, python_min: as in the manifest.
        filler: bytes of one more file, to give it a size.
        more: further files, by path.
    """

    version: str = "0.2.0"
    program: str | None = None
    product: str = "journeyman"
    os: str = sys.platform
    arch: str = this_host().arch
    python_min: str = "3.11"
    sequence: int = 1
    filler: bytes = b"x" * 1000
    unit_protocol: int = 0
    more: tuple[tuple[str, bytes], ...] = ()

    def lay_out(self, tree: Path) -> None:
        """Writes its tree."""
        program = self.program or SPEAKING.format(product=self.product, version=self.version)
        files = {ENTRY_POINT: program.encode(), "lib/filler": self.filler, **dict(self.more)}
        for name, content in files.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (tree / ENTRY_POINT).chmod(0o755)
        manifest = Manifest(
            product=self.product,
            version=VersionId(self.version),
            os=self.os,
            arch=self.arch,
            sequence=self.sequence,
            guard_protocol=1,
            python_min=self.python_min,
            python_max="3.14",
            files={
                name: ManifestFile(
                    Sha256(hashlib.sha256(content).hexdigest()), len(content), name == ENTRY_POINT
                )
                for name, content in files.items()
            },
            unit_protocol=self.unit_protocol,
        )
        (tree / MANIFEST_NAME).write_bytes(manifest.to_json())

    def build(self, folder: Path) -> Path:
        """Packs it below `folder`, and returns the archive."""
        tree = folder / f"tree-{self.version}"
        tree.mkdir(parents=True)
        self.lay_out(tree)
        archive = folder / f"{self.version}.tar.gz"
        pack(tree, archive)
        return archive


# Answers the exec check, and otherwise says with what it was started.
STARTING = """#!/bin/sh
[ "$1" = version ] && {{ echo '{{"product": "journeyman", "version": "{version}"}}'; exit; }}
echo "$JOURNEYMAN_RELEASE_NONCE $*"
"""
UPDATER = b"import sys; print('updated', *sys.argv[1:])"


def installable(folder: Path, key: SecretKey, *, updater: bytes = UPDATER) -> Path:
    """A signed release with the real guard and the real parent, as the first one of a host needs them.

    Args:
        folder: is made.
        key: signs it, with sequence 7.
        updater: what stands in for the updater.
    """
    files = {
        f"lib/journeyman_updater/{Path(str(module.__file__)).name}": Path(str(module.__file__)).read_bytes()
        for module in (guard, parent)
    }
    files |= {"lib/journeyman_updater/__main__.py": updater, "lib/journeyman_updater/__init__.py": b""}
    folder.mkdir()
    program = STARTING.format(version="0.2.0")
    artifact = SmallRelease(program=program, more=tuple(files.items())).build(folder)
    signature = artifact.with_name(artifact.name + ".minisig")
    signature.write_bytes(sign(artifact, key, bind(artifact, sequence=7)))
    return artifact


def bind(
    artifact: Path,
    *,
    version: str = "0.2.0",
    sequence: int = 1,
    expires: datetime = datetime(2040, 1, 1, tzinfo=UTC),
) -> ReleaseBinding:
    """What a signature over an artifact for this host promises."""
    data = artifact.read_bytes()
    host = this_host()
    return ReleaseBinding(
        product="journeyman",
        os=host.os,
        arch=host.arch,
        version=VersionId(version),
        sequence=sequence,
        size=len(data),
        sha256=Sha256(hashlib.sha256(data).hexdigest()),
        expires=expires,
    )


def sign(artifact: Path, key: SecretKey, binding: ReleaseBinding | None = None) -> bytes:
    """Signs an artifact as `scripts/release` does."""
    return key.sign(artifact, (binding or bind(artifact)).to_comment())


def member(
    name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, target: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    """One member of a forged archive."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.mode, info.linkname = len(content), kind, mode, target
    return info, content


def forge(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar.gz with exactly those members, sane or not."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=0)
