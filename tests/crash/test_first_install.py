"""The power fails at each point of a first installation: nothing half-made runs, and doing it again helps."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.bootstrap import install
from journeyman_updater.errors import Reason, RequestError
from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import VersionId
from journeyman_updater.steps.tree import is_valid
from journeyman_updater.transaction import Transaction
from tests.crash.disk import CrashDisk, PowerCutError
from tests.crash.invariants import NEVER, launched_copy, launchers
from tests.crash.releases import Release
from tests.crash.scenarios import after, make_scenario, single_outcomes
from tests.crash.world import World

KEY = SecretKey.generate().public.to_file()


@dataclass(frozen=True)
class Check:
    """Lets the updater of the new copy be asked for its help; it is a point like any spawn."""

    disk: CrashDisk

    def starts(self, command: Sequence[str | Path]) -> None:
        self.disk.point("spawn updater check")

    def guard(self, launcher: Path, root: Path, *, product: str, version: VersionId) -> None:
        raise AssertionError("nothing is active yet")

    def updater(self, launcher: Path, root: Path) -> None:
        raise AssertionError("the lock is held")


class FirstInstall:
    """A bare host and the one release that it is to get.

    Args:
        folder: for the artifact.
    """

    def __init__(self, folder: Path) -> None:
        scenario = make_scenario(folder, "good")
        self.root, self.release = scenario.root, scenario.wanted
        # In here an artifact is found by its SHA-256.
        self.artifact = folder / self.release.sha256
        self.artifact.write_bytes(self.release.archive)

    def run(self, world: World) -> None:
        """As `journeyman update bootstrap`; if that is refused as it is done already, the updater runs."""
        try:
            install(world.tools(), self.artifact, keys=(KEY,), source="agentrelease", check=Check(world.disk))
        except RequestError as error:
            if error.reason is not Reason.BAD_REQUEST:
                raise
            transaction = Transaction(world.tools())
            transaction.recover()
            transaction.tidy()

    def cut(self, at: int) -> CrashDisk:
        """The disk after a power cut before that point; past the last, nothing fails."""
        disk = CrashDisk(self.root)
        disk.cut_at = at
        with contextlib.suppress(PowerCutError):
            self.run(World(disk, (self.release,)))
        return disk

    def examine(self, image: CrashDisk, *, is_over: bool) -> None:
        """Lets the host boot with what a cut has left, and installs again."""
        world = World(image, (self.release,), boot=2)
        # What the guard execs is whole, or the world says so.
        world.start()
        assert world.agent is not None or not is_over, "what was installed is gone"
        self.run(world)
        assert_installed(world, self.release)


def assert_installed(world: World, release: Release) -> None:
    """All is there, durable or not, and nothing else."""
    disk, root, records = world.disk, world.root, world.tools().records
    status = records.load().status
    assert status.active is not None
    assert (status.active.sha256, status.trial, status.sequence) == (release.sha256, None, release.sequence)
    for launcher in launchers(world):
        assert launched_copy(world, launcher).name == release.sha256[:12]
    assert is_valid(disk, root.updater / release.sha256[:12], release.sha256)
    assert disk.names(root.versions) == [release.slot.folder]
    assert [disk.read(root.keys / name).decode() for name in disk.names(root.keys)] == [KEY]
    assert not disk.names(root.downloads)
    assert [record.step for record in records.history()][-1] in {Step.COMMITTED, Step.RETIRE}
    world.agent = None
    world.start()
    assert world.agent is not None
    assert world.agent.release == release


@pytest.mark.slow
def test_an_installation_that_was_cut_is_completed_by_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After any single cut the guard runs nothing or the whole release, and a second run completes it."""
    first = FirstInstall(tmp_path)
    points, outcomes = first.cut(NEVER).points, 0
    for at in range(len(points) + 1):
        disk = first.cut(at)
        for choices in single_outcomes(disk):
            outcomes += 1
            try:
                first.examine(after(disk, choices), is_over=at == len(points))
            except BaseException as error:
                error.add_note(f"cut at point {at}, after {points[:at][-1:]}, choices {choices}")
                raise
    with capsys.disabled():
        print(f"\nfirst install: {len(points)} points, {outcomes} outcomes", end="")  # noqa: T201
