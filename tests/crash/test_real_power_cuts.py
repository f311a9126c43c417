"""The power of a real disk fails during real updates: what was promised is there, and an agent runs.

Two ways to fail it: ext4 on a loop device is shut down without a flush of its journal and mounted again; and
a reflink of the block device is taken in mid-write, which is what a disk holds that lost its power then.
Neither loses what was flushed, and both lose what was not.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import queue
import random
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from journeyman_updater.model.release import UpdateRequest
from journeyman_updater.run import Ending
from tests.support.kept_host import KeptHost, dummy
from tests.support.mounts import image_mounted, make_image
from tests.support.waiting import eventually

REPOSITORY = Path(__file__).resolve().parent.parent.parent
MIB = 1024**2
# Without the heuristic that flushes a file which is renamed over another one.
OPTIONS = "noauto_da_alloc"
# linux/fs/ext4/ext4.h: EXT4_IOC_SHUTDOWN, and EXT4_GOING_FLAGS_NOLOGFLUSH.
SHUT_DOWN, WITHOUT_A_FLUSH = 0x8004587D, 2
# linux/fs.h
FICLONE = 0x40049409
LONGEST_WAIT_SECONDS = 0.05
LONGEST_SILENCE_SECONDS = 60
FSYNCS = 36
"""An update has about as many, and says something after each."""
CUTS = 10
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="cannot run here: ext4 and btrfs are Linux file systems"
)

Aloud = Callable[[], AbstractContextManager[None]]


@dataclass
class Promises:
    """What an updater has said to be durable."""

    states: list[str]
    journal: int
    promised: int = 0

    @classmethod
    def of(cls, host: KeptHost) -> Promises:
        """What holds before the updater starts."""
        return cls([_digest(host)], _journal_bytes(host))

    def take(self, line: str) -> None:
        said: dict[str, Any] = json.loads(line)
        if "writes" in said:
            self.states.append(said["writes"])
        elif "state" in said:
            self.promised, self.journal = self.states.index(said["state"]), said["journal"]

    def check(self, host: KeptHost) -> None:
        """Compares them with what is on the disk."""
        assert _digest(host) in self.states[self.promised :], "a promised state document is gone"
        assert _journal_bytes(host) >= self.journal, "promised records are gone"
        numbers = [record.seq for record in host.updater().history()]
        assert numbers == list(range(1, len(numbers) + 1)), "a record is damaged"


def _digest(host: KeptHost) -> str:
    return hashlib.sha256(host.root.state_file.read_bytes()).hexdigest()


def _journal_bytes(host: KeptHost) -> int:
    return host.root.journal_file.stat().st_size if host.root.journal_file.exists() else 0


@dataclass
class Bench:
    """A host whose state root lies on a disk that can fail.

    Attributes:
        image: the block device.
        mount: where it is mounted.
        host: the host; its artifacts, launchers and log lie elsewhere.
        mounts: what is mounted now.
    """

    image: Path
    mount: Path
    host: KeptHost
    mounts: ExitStack

    def mount_another(self, image: Path) -> None:
        """Takes the disk away, once nothing runs from it, and mounts another one in its place."""
        self.mounts.pop_all().close()
        self.mounts.enter_context(image_mounted(image, self.mount, OPTIONS))

    def boot(self, number: int) -> None:
        """Mounts what a failed disk holds.

        A copy of it, as a mount namespace of somebody else may keep the failed file system alive for a while:
        a second mount of one image would share it, or be overwritten by what it still has to write back.
        """
        failed, self.image = self.image, self.image.with_name(f"disk-{number}.img")
        subprocess.run(["cp", "--sparse=always", failed, self.image], check=True)
        self.mount_another(self.image)
        failed.unlink()


@contextmanager
def bench(folder: Path, image: Path) -> Iterator[Bench]:
    """A new disk with 0.1.0 running from it; afterwards nothing runs and nothing is mounted."""
    make_image(image, "ext4", 160 * MIB)
    mount = folder / "disk"
    with ExitStack() as mounts:
        mounts.enter_context(image_mounted(image, mount, OPTIONS))
        host = KeptHost(folder, mount / "state root")
        subprocess.run(["sync", "-f", mount], check=True)
        try:
            host.start()
            yield Bench(image, mount, host, mounts)
        finally:
            host.kill()


@pytest.fixture
def chance(capsys: pytest.CaptureFixture[str]) -> random.Random:
    """Its seed is printed."""
    seed = int(os.environ.get("JOURNEYMAN_CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    with capsys.disabled():
        print(f"\nseed {seed}", end="")  # noqa: T201
    return random.Random(seed)


@pytest.mark.slow
def test_ten_power_cuts(tmp_path: Path, chance: random.Random, capsys: pytest.CaptureFixture[str]) -> None:
    """After each of 10 cuts all that was promised is there, an agent runs, and the update goes through."""
    _cut_often(tmp_path, chance, capsys.disabled)


@pytest.mark.full
@pytest.mark.parametrize("part", range(6))
def test_sixty_power_cuts(
    tmp_path: Path, chance: random.Random, capsys: pytest.CaptureFixture[str], part: int
) -> None:
    """As the ten."""
    _cut_often(tmp_path, chance, capsys.disabled)


@pytest.mark.slow
def test_ten_snapshots(tmp_path: Path, chance: random.Random, capsys: pytest.CaptureFixture[str]) -> None:
    """What the disk held at 10 moments of an update is as good as what a cut leaves."""
    _snap_often(tmp_path, chance, capsys.disabled)


@pytest.mark.full
@pytest.mark.parametrize("part", range(6))
def test_sixty_snapshots(
    tmp_path: Path, chance: random.Random, capsys: pytest.CaptureFixture[str], part: int
) -> None:
    """As the ten."""
    _snap_often(tmp_path, chance, capsys.disabled)


@pytest.mark.slow
@pytest.mark.parametrize("fail_often", ["cuts", "snapshots"])
def test_an_updater_that_flushes_nothing_is_caught(
    tmp_path: Path, chance: random.Random, fail_often: str
) -> None:
    """Both find the lies of an updater without any fsync, or they would prove nothing."""
    fail = {"cuts": _cut_often, "snapshots": _snap_often}[fail_often]
    with pytest.raises(AssertionError, match="promised"):
        fail(tmp_path, chance, None, "--no-fsync")


def _cut_often(folder: Path, chance: random.Random, aloud: Aloud | None, *flags: str) -> None:
    seen: Counter[str] = Counter()
    with bench(folder, folder / "disk.img") as here:
        for number in range(CUTS):
            request = here.host.request(dummy(f"0.2.{number}"))
            promises = Promises.of(here.host)
            with _updating(here.host, request, *flags) as updater:
                updater.tell(promises, chance.randrange(FSYNCS))
                threading.Event().wait(chance.uniform(0, LONGEST_WAIT_SECONDS))
                updater.tell(promises, 0)
                _cut_power(here.mount)
                here.host.kill()
                updater.end(promises)
            here.boot(number)
            promises.check(here.host)
            seen[_last_step(here.host)] += 1
            _comes_back(here.host, request)
        assert "SECOND AGENT" not in here.host.starts()
    _say(aloud, f"{CUTS} power cuts, after {dict(seen)}")


def _snap_often(folder: Path, chance: random.Random, aloud: Aloud | None, *flags: str) -> None:
    seen: Counter[str] = Counter()
    make_image(folder / "pool.img", "btrfs", 512 * MIB)
    with (
        image_mounted(folder / "pool.img", folder / "pool", "rw") as pool,
        bench(folder, pool / "disk.img") as here,
    ):
        request = here.host.request(dummy("0.2.0"))
        snapshots = _snapshots(here, request, pool, chance, *flags)
        for image, promises in snapshots:
            here.host.kill()
            here.mount_another(image)
            promises.check(here.host)
            seen[_last_step(here.host)] += 1
            _comes_back(here.host, request)
    _say(aloud, f"{CUTS} snapshots, after {dict(seen)}")


def _say(aloud: Aloud | None, text: str) -> None:
    if aloud:
        with aloud():
            print(f": {text}", end="")  # noqa: T201


def _snapshots(
    here: Bench, request: UpdateRequest, pool: Path, chance: random.Random, *flags: str
) -> list[tuple[Path, Promises]]:
    """Reflinks of the disk at moments of an update, and what was promised by then."""
    found = []
    promises = Promises.of(here.host)
    with _updating(here.host, request, *flags) as updater:
        for number in range(CUTS):
            updater.tell(promises, chance.randrange(1, 6))
            threading.Event().wait(chance.uniform(0, LONGEST_WAIT_SECONDS))
            image = pool / f"snapshot-{number}.img"
            # What is written later may be on it, so all share one list of states.
            found.append((image, replace(promises)))
            with here.image.open("rb") as source, image.open("wb") as target:
                fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
        updater.end(promises)
    return found


class _Updater:
    """An updater at work, whose lines are read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def tell(self, promises: Promises, lines: int) -> None:
        """Waits for so many lines, or for its end, and takes all that are here."""
        for _ in range(lines):
            line = self._lines.get(timeout=LONGEST_SILENCE_SECONDS)
            if not line:
                # The end, also for whoever asks next.
                self._lines.put(line)
                return
            promises.take(line)
        self._take_rest(promises)

    def end(self, promises: Promises) -> None:
        """Waits for its end; what it says from now on may be on the disk, and is no promise any more.

        An fsync that is under way during EXT4_IOC_SHUTDOWN can return as if it had succeeded; in a real cut
        of power nobody would hear of it.
        """
        self._reader.join()
        heard = replace(promises)
        self._take_rest(heard)

    def _take_rest(self, promises: Promises) -> None:
        while not self._lines.empty():
            line = self._lines.get()
            if not line:
                self._lines.put(line)
                return
            promises.take(line)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A killed updater may leave half a line.
            if line.endswith("\n"):
                self._lines.put(line)
        self._lines.put("")


@contextmanager
def _updating(host: KeptHost, request: UpdateRequest, *flags: str) -> Iterator[_Updater]:
    words = [str(host.root.path), request.version.spelled, request.url, request.sha256, *flags]
    command = [sys.executable, "-m", "tests.support.told_update", *words]
    with (
        (host.folder / "log").open("ab") as log,
        subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield _Updater(process)
        finally:
            process.kill()


def _cut_power(mount: Path) -> None:
    descriptor = os.open(mount, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUT_DOWN, struct.pack("I", WITHOUT_A_FLUSH))
    finally:
        os.close(descriptor)


def _last_step(host: KeptHost) -> str:
    history = host.updater().history()
    return str(history[-1].step) if history else "-"


def _comes_back(host: KeptHost, request: UpdateRequest) -> None:
    """The guard finds something to run, and the next run of the updater brings the update to its end."""
    host.start(expect=None)
    outcome = host.updater().apply(request)
    assert outcome.ending in {Ending.COMMITTED, Ending.NOT_NEEDED}, outcome
    eventually(lambda: host.reported() == request.version.spelled, within_seconds=20)
