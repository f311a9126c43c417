"""The histories that are cut, and every way in which one cut can end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from journeyman_updater.steps.base import Limits
from tests.crash.disk import CrashDisk
from tests.crash.installation import install
from tests.crash.invariants import Cut, WatchedDisk, check_platter, converge, run_until_cut
from tests.crash.releases import Release
from tests.crash.world import LIMITS, World
from tests.simulator.releases import SmallRelease

BEHAVIOURS = ("good", "crash", "hang", "late", "mute")


@dataclass(frozen=True)
class Scenario:
    """Two releases that lie on the host, and one that is asked for.

    Attributes:
        root: the state root; real artifacts lie in its `downloads/`, as the real unpacker reads them there.
        old: previous and active release.
        wanted: the one that is asked for.
        is_first: whether the active release is the first ever, so that none is retired.
        rotate_bytes: at which size the journal is rotated.
    """

    root: Path
    old: tuple[Release, Release]
    wanted: Release
    is_first: bool = False
    rotate_bytes: int = 1024**2
    _converged: set[bytes] = field(init=False, repr=False, compare=False, default_factory=set)
    """Platters from which it was seen to converge: the bottle is deterministic, so once is enough."""

    @property
    def is_good(self) -> bool:
        return self.wanted.behaviour == "good"

    def begin(self, limits: Limits = LIMITS) -> World:
        """A host on which the active release runs."""
        releases = (*self.old, self.wanted)
        world = World(WatchedDisk(self.root), releases, limits=limits, rotate_bytes=self.rotate_bytes)
        install(world, *(self.old[1:] if self.is_first else self.old))
        world.wait(2)
        return world

    def count_points(self, *, killed_at: int | None = None) -> list[str]:
        """The points of the whole history, found by running it once."""
        world = self.begin()
        if killed_at is not None:
            run_until_cut(world, self.wanted, killed_at)
        run_until_cut(world, self.wanted)
        return list(world.disk.points)

    def cuts(self, *, killed_at: int | None = None, dropped_fsync: int | None = None) -> list[Cut]:
        """What a cut before each point of the history leaves, and one after the last; it is run once for all.

        Args:
            killed_at: the updater is killed before that point; the cuts are those of the run after it.
            dropped_fsync: the number of an fsync that does nothing.
        """
        world = self.begin()
        disk = world.disk
        assert isinstance(disk, WatchedDisk)
        if killed_at is not None:
            run_until_cut(world, self.wanted, killed_at)
        disk.cuts, disk.dropped_fsync = [], dropped_fsync
        run_until_cut(world, self.wanted)
        return disk.cuts

    def killed(self, at: int) -> World:
        """A host that goes on after kill -9 of the updater before that point."""
        world = self.begin()
        run_until_cut(world, self.wanted, at)
        return world

    def examine(self, cut: Cut, choices: list[int]) -> None:
        """Checks one outcome of a cut, and that the host finds its way from there."""
        image = after(cut.disk, choices)
        releases = (*self.old, self.wanted)
        found = image.fingerprint()
        if found in cut.passed:
            return
        check_platter(image, cut.evidence, releases)
        cut.passed.add(found)
        if found in self._converged:
            return
        world = World(image, releases, 2, LIMITS, self.rotate_bytes)
        world.start()
        converge(world, self.wanted, is_good=self.is_good)
        self._converged.add(found)


def make_scenario(folder: Path, behaviour: str, *, filler: bytes = b"x", unit_protocol: int = 1) -> Scenario:
    """Builds the artifacts of a scenario.

    Args:
        folder: where they and the state root lie.
        behaviour: of the release that is asked for.
        filler: one byte of content, to tell builds of one version apart.
        unit_protocol: whether the releases can be asked for their unit.
    """
    root = folder / "state root"
    (root / "downloads").mkdir(parents=True)

    def build(version: str, sequence: int, behaviour: str = "good") -> Release:
        archive = (
            SmallRelease(version=version, sequence=sequence, filler=filler * 300, unit_protocol=unit_protocol)
            .build(folder)
            .read_bytes()
        )
        release = Release(version, archive, behaviour, sequence)
        (root / "downloads" / f"{release.sha256}.tar.gz").write_bytes(archive)
        return release

    return Scenario(root, (build("0.0.9", 1), build("0.1.0", 2)), build("0.2.0", 3, behaviour))


def after(disk: CrashDisk, choices: list[int]) -> CrashDisk:
    """The platter under these choices; whatever they do not mention ends kindly."""
    remaining = iter(choices)
    return disk.after_cut(lambda ways: min(next(remaining, 0), ways - 1))


def single_outcomes(disk: CrashDisk) -> Iterator[list[int]]:
    """A clean cut, all lost, each kind of torn write, and each pending thing lost alone or kept alone."""
    count = len(disk.undecided())
    yield [0] * count
    for worst in (1, 2, 3, 4):
        yield [worst] * count
    for position in range(count):
        yield [int(position == each) for each in range(count)]
        yield [int(position != each) for each in range(count)]


def random_outcome(disk: CrashDisk, chance: random.Random) -> list[int]:
    """Any outcome of a cut; what a lost name brings back has choices of its own, so there are spare ones."""
    return [chance.choice((0, 0, 1, 2, 3, 4)) for _ in range(len(disk.undecided()) + 20)]
