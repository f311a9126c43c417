"""How sensors reach the host: files that refuse, and programs that hang."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from pathlib import Path

import pytest

from journeyman.adapters.sensors.access import HostFiles, refused, run_command
from journeyman.adapters.sensors.catalogue import one_at_a_time
from journeyman.model.readings import Quality
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    ("number", "quality"),
    [
        (errno.EACCES, Quality.DENIED), (errno.EPERM, Quality.DENIED),
        (errno.ENOENT, Quality.UNSUPPORTED), (errno.EOPNOTSUPP, Quality.UNSUPPORTED),
        (errno.EAGAIN, Quality.ERROR), (errno.EIO, Quality.ERROR), (errno.ENODATA, Quality.ERROR),
    ],
)  # fmt: skip
def test_a_refusal_has_the_quality_that_it_means(number: int, quality: Quality) -> None:
    """Denied, absent and broken are three things to mend."""
    found = refused(OSError(number, os.strerror(number)))
    assert (found.value, found.quality) == (None, quality)


def test_a_constant_that_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    """A driver that loads late is found; one that was read is not read twice."""
    files = HostFiles(tmp_path)
    assert files.constant("name").value is None
    (tmp_path / "name").write_text("coretemp\n")
    assert files.constant("name").value == "coretemp"
    (tmp_path / "name").write_text("other\n")
    assert files.constant("name").value == "coretemp"


def test_a_program_that_is_not_there_is_unsupported() -> None:
    """No exception, no value."""
    assert run_command(["journeyman-no-such-program"], 1).quality is Quality.UNSUPPORTED


@pytest.mark.slow
def test_a_program_that_fails_says_why() -> None:
    """The last line of its stderr is the detail."""
    found = run_command([sys.executable, "-c", "import sys; sys.exit('no permission')"], 10)
    assert (found.quality, found.detail) == (Quality.ERROR, "no permission")


@pytest.mark.slow
def test_a_program_that_hangs_is_killed_with_its_whole_group(tmp_path: Path) -> None:
    """termux-api#861: a program that never answers leaves no process behind, and no zombie."""
    pids = tmp_path / "pids"
    script = (
        "import os,subprocess,sys,time,signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)\n"
    )
    found = run_command([sys.executable, "-c", script], 5)
    assert found.quality is Quality.TIMEOUT
    started = pids.read_text().split()
    eventually(lambda: not any(_runs(pid) for pid in started))


def _runs(pid: str) -> bool:
    """Whether a process is there and no zombie that its new parent has yet to reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_a_grandchild_that_left_the_group_does_not_hold_us_up(tmp_path: Path) -> None:
    """It can keep the pipe open; the deadline counts all the same."""
    release = tmp_path / "release"
    os.mkfifo(release)
    grandchild = f"open({str(release)!r}).read()"
    script = (
        "import subprocess,sys,time\n"
        f"subprocess.Popen([sys.executable, '-c', {grandchild!r}], start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    found = run_command([sys.executable, "-c", script], 5)
    release.write_text("end")
    assert found.quality is Quality.TIMEOUT


def test_phones_run_one_child_at_a_time() -> None:
    """Two threads that ask at once take turns."""
    inside, most = [0], [0]
    entered = threading.Barrier(2, timeout=0.2)

    def run(argv: object, deadline: float) -> object:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        with contextlib.suppress(threading.BrokenBarrierError):
            entered.wait()
        inside[0] -= 1
        return None

    turn = one_at_a_time(run)  # type: ignore[arg-type]
    threads = [threading.Thread(target=turn, args=(["x"], 1.0)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert most[0] == 1
