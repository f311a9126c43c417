"""A host in the bottle as it is after its first installation and some updates."""

from __future__ import annotations

import hashlib

from journeyman_updater.adapters.unpack import TarUnpacker
from journeyman_updater.core.launcher import render_launchers
from journeyman_updater.model.manifest import MANIFEST_NAME, VALIDITY_NAME, Validity
from journeyman_updater.model.release import Sha256
from journeyman_updater.model.state import Spec, StateDocument, Status
from journeyman_updater.steps.copy import lay_copy
from tests.crash.releases import Release
from tests.crash.world import LIMITS, World


def install(world: World, *releases: Release) -> None:
    """Lays releases down as if they had been committed one after the other; the last is active and runs."""
    disk, root = world.disk, world.root
    world.installed = releases
    for folder in (root.versions, root.downloads, root.updater):
        if not disk.is_directory(folder):
            disk.mkdir(folder)
    for release in releases:
        tree = root.versions / release.slot.folder
        disk.mkdir(tree)
        archive = root.downloads / f"{release.sha256}.tar.gz"
        TarUnpacker(disk).unpack(archive, tree, LIMITS.unpack)
        manifest = Sha256(hashlib.sha256(disk.read(tree / MANIFEST_NAME)).hexdigest())
        disk.write(tree / VALIDITY_NAME, Validity(release.sha256, manifest).to_json())
    slots = [release.slot for release in releases]
    previous = slots[-2] if len(slots) > 1 else None
    disk.mkdir(world.unit_file.parent)
    disk.write(world.unit_file, releases[-1].unit)
    status = Status(active=slots[-1], previous=previous, sequence=slots[-1].sequence)
    copy = lay_copy(world.tools(), slots[-1])
    texts = render_launchers(
        root, str(copy), recorded_python="/usr/bin/python3", lowest="3.11", highest="3.14"
    )
    for name, text in texts.items():
        disk.write(root.path / name, text.encode(), mode=0o755)
    spec = Spec(source="agentrelease", ready_seconds=world.limits.health.ready)
    disk.write(root.state_file, StateDocument(spec, status).to_json())
    disk.settle()
    world.start()
    disk.points.clear()
    disk.fsyncs = 0
