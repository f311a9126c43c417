"""The shim as a real process, started by hand as the agent would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from journeyman_updater.contract import (
    WorkerExit,
    WorkerFolder,
    WorkerRecord,
    WorkerSpec,
    kill_session,
)
from journeyman_updater.shim_output import BoundedLog
from tests.support.waiting import eventually

slow = pytest.mark.slow
PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass
class Started:
    folder: WorkerFolder
    record: WorkerRecord

    def exit(self) -> WorkerExit:
        """Waits for the worker's end and the shim's after it."""
        eventually(lambda: not self.record.shim.is_running(), within_seconds=20)
        return WorkerExit.from_json(self.folder.exit.read_bytes())


def run_shim(folder: WorkerFolder, spec: WorkerSpec) -> subprocess.CompletedProcess[str]:
    folder.files.mkdir(parents=True)
    folder.spec.write_bytes(spec.to_json())
    command = [sys.executable, "-m", "journeyman_updater.shim", str(folder.path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a shell script under a shim, and leaves nothing of it behind."""
    folder = WorkerFolder(tmp_path / "w 1")
    records: list[WorkerRecord] = []

    def run(script: str, *, env: dict[str, str] | None = None, log_limit_bytes: int = 1 << 20) -> Started:
        argv = ("/bin/sh", "-c", script)
        done = run_shim(
            folder, WorkerSpec("test", argv, env or {"PATH": PATH}, log_limit_bytes=log_limit_bytes)
        )
        assert (done.returncode, done.stderr) == (0, "")
        records.append(WorkerRecord.from_json(folder.record.read_bytes()))
        return Started(folder, records[-1])

    yield run
    for record in records:
        kill_session(record.worker)
        kill_session(record.shim)


@slow
@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("kill -11 $$", None, 11)],
)
def test_the_end_is_recorded(start: Start, script: str, code: int | None, number: int | None) -> None:
    """`exit.json` holds the code or the signal, and the nonce of the record."""
    worker = start(script)
    ended = worker.exit()
    assert (ended.code, ended.signal, ended.error) == (code, number, "")
    assert ended.nonce == worker.record.nonce
    assert 0 <= ended.elapsed_seconds < 20


@slow
def test_the_environment_is_exactly_that_of_the_spec(start: Start) -> None:
    """Nothing of the starter's or the shim's environment reaches the worker."""
    dump = 'tr "\\0" "\\n" < /proc/$$/environ'
    worker = start(dump, env={"PATH": PATH, "NAME": "two words"})
    worker.exit()
    assert sorted(worker.folder.stdout.read_text().split("\n")) == ["", "NAME=two words", f"PATH={PATH}"]


@slow
def test_the_worker_is_a_stranger_to_its_starter(start: Start) -> None:
    """Shim and worker lead sessions of their own, and the shim is nobody's child but init's."""
    worker = start("exec sleep 1000")
    shim, process = worker.record.shim.pid, worker.record.worker.pid
    assert os.getsid(shim) == shim
    assert os.getsid(process) == process == os.getpgid(process)
    parents = {pid: int(_stat(pid)[1]) for pid in (shim, process)}
    assert parents[process] == shim
    assert parents[shim] not in {os.getpid(), os.getppid()}
    os.kill(shim, signal.SIGTERM)
    worker.exit()


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_worker(start: Start, number: signal.Signals) -> None:
    """What the shim is asked to do by a signal the worker decides: here it ends with a code of its own."""
    script = f"trap 'exit 5' {number.value}; echo ready; while :; do sleep 1; done"
    worker = start(script)
    eventually(lambda: worker.folder.stdout.read_bytes() == b"ready\n", within_seconds=20)
    os.kill(worker.record.shim.pid, number)
    assert worker.exit().code == 5


@slow
def test_a_starter_that_blocks_signals_does_not_make_a_deaf_worker(start: Start) -> None:
    """The signal mask of the starter is not handed down."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        worker = start("exec sleep 1000")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.kill(worker.record.shim.pid, signal.SIGTERM)
    assert worker.exit().signal == signal.SIGTERM


@slow
def test_the_worker_starts_with_quiet_descriptors(start: Start) -> None:
    """Standard input is empty, the umask is private, and no other descriptor leaks into the worker."""
    worker = start("cat; umask; ls /proc/$$/fd")
    worker.exit()
    assert worker.folder.stdout.read_text().split() == ["0077", "0", "1", "2"]


@slow
def test_logs_are_bounded_and_keep_the_end(start: Start) -> None:
    """However much is printed, a log and its older half stay below the limit and end with the last line."""
    worker = start("seq 1 200000; seq 1 9 >&2", log_limit_bytes=100_000)
    worker.exit()
    older = worker.folder.stdout.with_name("stdout.log.1")
    kept = older.read_bytes() + worker.folder.stdout.read_bytes()
    assert 50_000 <= len(kept) <= 100_000
    assert kept.endswith(b"\n199999\n200000\n")
    assert worker.folder.stderr.read_text() == "".join(f"{number}\n" for number in range(1, 10))


@slow
def test_children_left_behind_end_with_the_worker(start: Start) -> None:
    """Processes that the worker leaves in its session are killed, also in process groups of their own."""
    script = "set -m; sleep 1000 & echo $!; exit 0"
    worker = start(script)
    assert worker.exit().code == 0
    left = int(worker.folder.stdout.read_text())
    eventually(lambda: not _runs(left), within_seconds=5)


def _runs(pid: int) -> bool:
    try:
        return _stat(pid)[0] not in "ZX"
    except FileNotFoundError:
        return False


@slow
def test_a_daemon_that_holds_the_output_does_not_hold_the_shim(start: Start) -> None:
    """A process that left the session and keeps the pipes open delays the end by seconds, not for ever."""
    script = (
        "mkfifo born; setsid sh -c 'echo $$ > born; exec sleep 1000' & read pid < born; echo $pid; exit 4"
    )
    worker = start(script)
    started = time.monotonic()
    assert worker.exit().code == 4
    assert time.monotonic() - started < 10
    daemon = int(re.findall(r"\d+", worker.folder.stdout.read_text())[0])
    os.kill(daemon, signal.SIGKILL)


@slow
def test_a_missing_program_is_one_line_and_leaves_no_record(tmp_path: Path) -> None:
    """The starter gets 127 and the reason; `exit.json` keeps it."""
    folder = WorkerFolder(tmp_path / "w")
    done = run_shim(folder, WorkerSpec("test", ("no-such-program", "x"), {"PATH": PATH}))
    assert done.returncode == 127
    assert done.stderr == "cannot start 'no-such-program': No such file or directory\n"
    assert not folder.record.exists()
    ended = WorkerExit.from_json(folder.exit.read_bytes())
    assert (ended.code, ended.error) == (127, done.stderr.strip())


@slow
def test_a_missing_working_directory_is_told(tmp_path: Path) -> None:
    """A worker that cannot enter its directory does not run somewhere else."""
    folder = WorkerFolder(tmp_path / "w")
    done = run_shim(folder, WorkerSpec("test", ("/bin/true",), {}, cwd=str(tmp_path / "nowhere")))
    assert done.returncode == 127
    assert "No such file or directory" in done.stderr


@slow
@pytest.mark.parametrize(("argv", "env"), [((), {}), (("/bin/true",), {"A": 1}), (("/bin/true", "\0"), {})])
def test_a_program_that_cannot_be_named_is_told(
    tmp_path: Path, argv: tuple[str, ...], env: dict[str, str]
) -> None:
    """Whatever is wrong with arguments or environment is one line, and no silent end."""
    folder = WorkerFolder(tmp_path / "w")
    done = run_shim(folder, WorkerSpec("test", argv, env))
    assert done.returncode == 127
    assert done.stderr.startswith("cannot start ")
    assert done.stderr.count("\n") == 1
    assert not folder.record.exists()


@slow
def test_a_starter_that_is_gone_leaves_a_worker_that_is_looked_after(tmp_path: Path) -> None:
    """When nobody is left to hear that the worker started, it still runs under its shim to its end."""
    folder = WorkerFolder(tmp_path)
    folder.files.mkdir()
    folder.spec.write_bytes(WorkerSpec("test", ("/bin/sh", "-c", "echo out; exit 3")).to_json())
    script = (
        "import os, sys; from pathlib import Path\n"
        "from journeyman_updater.contract.worker_files import spec_from\n"
        "from journeyman_updater.shim import run\n"
        "folder = sys.argv[1]\n"
        "reader, writer = os.pipe(); os.close(reader)\n"
        "run(folder, spec_from(Path(folder, 'spec.json').read_bytes()), writer)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=20)
    assert WorkerExit.from_json(folder.exit.read_bytes()).code == 3
    assert folder.stdout.read_text() == "out\n"


@slow
def test_a_broken_spec_starts_nothing(tmp_path: Path) -> None:
    """Without a usable spec the answer is one line and the exit code of a bad configuration."""
    folder = WorkerFolder(tmp_path)
    folder.spec.write_text("{}")
    command = [sys.executable, "-m", "journeyman_updater.shim", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spec.json"]


@slow
def test_nothing_runs_when_the_folder_vanishes_during_the_start(tmp_path: Path) -> None:
    """A worker whose record cannot be made durable never runs its program."""
    folder = WorkerFolder(tmp_path / "w")
    # A directory in the record's place makes the rename fail, as a folder that was taken away does.
    folder.record.mkdir(parents=True)
    proof = tmp_path / "it-ran"
    done = run_shim(folder, WorkerSpec("test", ("/bin/sh", "-c", f"touch '{proof}'"), {"PATH": PATH}))
    assert done.returncode == 127
    assert "Is a directory" in done.stderr
    assert not proof.exists()


@slow
def test_an_idle_shim_is_small_and_sleeps(start: Start) -> None:
    """It costs under 12 MB of its own and does not wake up while nothing happens."""
    worker = start("exec sleep 1000")
    shim = Path(f"/proc/{worker.record.shim.pid}")
    eventually(lambda: "S (sleeping)" in (shim / "status").read_text(), within_seconds=5)
    before = _switches(shim)
    with pytest.raises(AssertionError):
        eventually(lambda: _switches(shim) != before, within_seconds=0.5)
    private = re.findall(r"Private_\w+: +(\d+) kB", (shim / "smaps_rollup").read_text())
    assert sum(map(int, private)) < 12_000
    os.kill(worker.record.shim.pid, signal.SIGTERM)
    worker.exit()


def _switches(process: Path) -> list[str]:
    return re.findall(r"ctxt_switches:\s+(\d+)", (process / "status").read_text())


@pytest.mark.parametrize("sizes", [[1, 1, 1], [10], [3, 4, 5], [25], [100]])
def test_a_log_never_exceeds_its_limit(tmp_path: Path, sizes: list[int]) -> None:
    """Any split of the output leaves at most the limit, and it is the end that is kept."""
    log = BoundedLog(str(tmp_path / "log"), 20)
    written = b""
    for size in sizes:
        data = bytes(97 + (len(written) + index) % 26 for index in range(size))
        log.write(data)
        written += data
    older = tmp_path / "log.1"
    kept = (older.read_bytes() if older.exists() else b"") + (tmp_path / "log").read_bytes()
    assert len(kept) <= 20
    assert written.endswith(kept)
    assert len(kept) >= min(len(written), 10)


def test_a_log_that_cannot_rotate_stays_bounded(tmp_path: Path) -> None:
    """Something in the way of the older half costs old output, and never the bound."""
    (tmp_path / "log.1").mkdir()
    (tmp_path / "log.1" / "in the way").touch()
    log = BoundedLog(str(tmp_path / "log"), 20)
    for _ in range(10):
        log.write(b"1234567")
    assert 0 < (tmp_path / "log").stat().st_size <= 10


def test_a_log_that_cannot_be_opened_again_does_not_end_the_shim(tmp_path: Path) -> None:
    """Without a place to write, output is lost, and that is all."""
    folder = tmp_path / "gone"
    folder.mkdir()
    log = BoundedLog(str(folder / "log"), 20)
    log.write(b"1234567890")
    (folder / "log").unlink()
    folder.rmdir()
    log.write(b"1234567890" * 10)
    assert not folder.exists()


@slow
def test_a_copy_is_exact_and_a_slow_reader_makes_the_worker_wait(tmp_path: Path) -> None:
    """Far more than pipes and logs hold arrives whole, in order, though it is read only after a while."""
    folder, fifo = WorkerFolder(tmp_path / "w"), tmp_path / "out"
    readers = []
    for name in ("out", "err"):
        os.mkfifo(tmp_path / name)
        readers.append(os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK))
    script = "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done"
    copies = (str(fifo), str(tmp_path / "err"))
    spec = WorkerSpec("test", ("/bin/sh", "-c", script), log_limit_bytes=1000, copies=copies, private=True)
    assert run_shim(folder, spec).returncode == 0
    assert not folder.spec.exists()
    assert WorkerRecord.from_json(folder.record.read_bytes()).worker.is_running()
    os.set_blocking(readers[0], True)
    with os.fdopen(readers[0], "rb") as stream:
        assert stream.read() == b"".join(b"line %d\n" % number for number in range(40_000))
    os.close(readers[1])
    eventually(folder.exit.exists, within_seconds=10)
    assert WorkerExit.from_json(folder.exit.read_bytes()).code == 0


@slow
def test_nothing_runs_for_a_reader_that_has_gone(tmp_path: Path) -> None:
    """A worker whose output nobody waits for is not started, and the answer says so."""
    folder, proof = WorkerFolder(tmp_path / "w"), tmp_path / "it-ran"
    for name in ("out", "err"):
        os.mkfifo(tmp_path / name)
    copies = (str(tmp_path / "out"), str(tmp_path / "err"))
    done = run_shim(folder, WorkerSpec("test", ("/usr/bin/touch", str(proof)), copies=copies))
    assert done.returncode == 127
    assert "nobody waits for its output" in done.stderr
    assert not proof.exists()


@slow
def test_a_reader_that_leaves_is_forgotten(tmp_path: Path) -> None:
    """The worker goes on to its own end, and its log still has what it said."""
    folder = WorkerFolder(tmp_path / "w")
    readers = []
    for name in ("out", "err"):
        os.mkfifo(tmp_path / name)
        readers.append(os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK))
    copies = (str(tmp_path / "out"), str(tmp_path / "err"))
    script = "head -c 300000 /dev/zero; echo the end"
    spec = WorkerSpec("test", ("/bin/sh", "-c", script), {"PATH": os.defpath}, copies=copies)
    assert run_shim(folder, spec).returncode == 0
    for reader in readers:
        os.close(reader)
    eventually(folder.exit.exists, within_seconds=10)
    assert folder.stdout.read_bytes().endswith(b"the end\n")
