"""Builds tiny releases that only pretend to be an agent: good ones, crashing ones and hanging ones."""

from __future__ import annotations

import hashlib
import shlex
import sys
from datetime import datetime
from pathlib import Path

from journeyman_updater.adapters.host_facts import this_host
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.adapters.pack import pack
from journeyman_updater.core.fit import PRODUCT
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.manifest import ENTRY_POINT, MANIFEST_NAME, Manifest, ManifestFile
from journeyman_updater.model.release import Sha256, VersionId

_PROGRAM = "lib/dummy.py"
# Speaks the trial handshake as the real agent does, with the contract of the updater that tries it.
_AGENT = """import json, os, sys, time
VERSION, BEHAVIOUR = {version!r}, {behaviour!r}
if sys.argv[1:2] == ["version"]:
    print(json.dumps({{"product": {product!r}, "version": VERSION}}))
    sys.exit()
if BEHAVIOUR == "crash":
    sys.exit(1)
if BEHAVIOUR == "hang":
    time.sleep(3600)
import signal
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {library!r})
from journeyman_updater.contract import StateRoot, TrialReport, start_time
from journeyman_updater.contract.trial import NONCE_VARIABLE, SHA_VARIABLE

path = StateRoot(Path(sys.argv[2])).trial_file
report = TrialReport(
    os.environ[NONCE_VARIABLE], os.getpid(), start_time(os.getpid()) or "", os.environ[SHA_VARIABLE]
)

def say(report):
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(report.to_json())
    temporary.replace(path)

def stop(*_):
    say(replace(report, stopped=True))
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
signal.alarm(0)
while True:
    say(report)
    beats = report.beats_attempted + 1
    report = replace(report, beats_attempted=beats, beats_accepted=beats)
    time.sleep(0.1)
"""


def build_dummy(
    folder: Path,
    library: Path,
    version: str,
    behaviour: str,
    *,
    sequence: int,
    key: SecretKey,
    expires: datetime,
) -> Path:
    """Builds and signs one, for this host and the Python that runs us.

    Args:
        folder: where it is built; the artifact stays there, with its signature beside it.
        library: the folder that holds the updater's package, whose contract it speaks.
        version: what it says it is.
        behaviour: `good`, `crash` (ends as soon as it is to run) or `hang` (never becomes READY).
        sequence: of its signature.
        key: signs it.
        expires: until when the signature permits an update; aware.

    Returns:
        The artifact.
    """
    python = shlex.quote(sys.executable)
    files = {
        ENTRY_POINT: f'#!/bin/sh\nexec {python} -I -S -B "${{0%/*}}/../{_PROGRAM}" "$@"\n',
        _PROGRAM: _AGENT.format(version=version, behaviour=behaviour, product=PRODUCT, library=str(library)),
    }
    tree, host = folder / f"tree-{version}", this_host()
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755 if name == ENTRY_POINT else 0o644)
    supported = f"{host.python[0]}.{host.python[1]}"
    manifest = Manifest(
        product=PRODUCT,
        version=VersionId(version),
        os=host.os,
        arch=host.arch,
        sequence=sequence,
        guard_protocol=1,
        python_min=supported,
        python_max=supported,
        files={name: _facts(name, text.encode()) for name, text in files.items()},
    )
    (tree / MANIFEST_NAME).write_bytes(manifest.to_json())
    artifact = folder / f"{version}.tar.gz"
    pack(tree, artifact)
    size, sha256 = artifact.stat().st_size, Sha256(hashlib.sha256(artifact.read_bytes()).hexdigest())
    promise = ReleaseBinding(
        PRODUCT, host.os, host.arch, manifest.version, sequence, size, sha256, expires
    ).to_comment()
    artifact.with_name(artifact.name + ".minisig").write_bytes(key.sign(artifact, promise))
    return artifact


def _facts(name: str, content: bytes) -> ManifestFile:
    return ManifestFile(Sha256(hashlib.sha256(content).hexdigest()), len(content), name == ENTRY_POINT)
