"""A release says who it is before anything stops."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.adapters.exec_check import SubprocessExecCheck
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.errors import HostError, Reason, ReleaseError, UpdaterError
from journeyman_updater.model.manifest import ENTRY_POINT
from journeyman_updater.model.release import VersionId
from tests.simulator.releases import SPEAKING, SmallRelease
from tests.support.mounts import mounted
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
VERSION = VersionId("0.2.0")


def check(
    tree: Path, program: str | None = None, *, deadline_seconds: float = 10.0, version: str = "0.2.0"
) -> None:
    """Lays out a release with that program and asks it."""
    SmallRelease(program=program, version=version).lay_out(tree)
    SubprocessExecCheck(SystemClock(), deadline_seconds=deadline_seconds).run(
        tree, product="journeyman", version=VERSION
    )


@pytest.mark.parametrize("version", ["0.2.0", "v0.2.0", "0.2.0+build.7"])
def test_a_release_that_names_itself_passes(version: str, tmp_path: Path) -> None:
    """Product and version are compared, the latter however it is spelled."""
    check(tmp_path, version=version)


ANSWERS = {
    "wrong version": ('echo \'{"product": "journeyman", "version": "0.1.0"}\'', Reason.VERSION_MISMATCH),
    "wrong product": ('echo \'{"product": "other", "version": "0.2.0"}\'', Reason.WRONG_PRODUCT),
    "no version": ('echo \'{"product": "journeyman"}\'', Reason.EXEC_CHECK_FAILED),
    "no JSON": ("echo journeyman 0.2.0", Reason.EXEC_CHECK_FAILED),
    "JSON of another kind": ("echo '[]'", Reason.EXEC_CHECK_FAILED),
    "no answer": ("true", Reason.EXEC_CHECK_FAILED),
    "endless answer": ("head -c 1000000 /dev/zero", Reason.EXEC_CHECK_FAILED),
    "failure": ("echo no such library >&2; exit 3", Reason.EXEC_CHECK_FAILED),
    "crash": ("kill -SEGV $$", Reason.EXEC_CHECK_FAILED),
}


@pytest.mark.parametrize(("script", "reason"), ANSWERS.values(), ids=ANSWERS)
def test_another_answer_rejects_the_release(script: str, reason: Reason, tmp_path: Path) -> None:
    """An answer that is not this product and version is evidence against the release."""
    with pytest.raises(ReleaseError) as refused:
        check(tmp_path, f"#!/bin/sh\n{script}\n")
    assert refused.value.reason is reason


def test_what_it_complained_of_is_shown(tmp_path: Path) -> None:
    """The last line on stderr is part of the message."""
    with pytest.raises(ReleaseError, match="no such library"):
        check(tmp_path, "#!/bin/sh\necho no such library >&2; exit 3\n")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("\x7fELF" + "\0" * 100, Reason.NOT_EXECUTABLE_FORMAT),
        ("#!/no/such/interpreter\n", Reason.EXEC_CHECK_FAILED),
    ],
    ids=["unknown format", "missing interpreter"],
)
def test_a_program_that_cannot_start_rejects_the_release(
    program: str, reason: Reason, tmp_path: Path
) -> None:
    """What the kernel does not start is told apart by why."""
    with pytest.raises(ReleaseError) as refused:
        check(tmp_path, program)
    assert refused.value.reason is reason


def test_a_hanging_release_is_killed_with_its_children(tmp_path: Path) -> None:
    """After the second deadline it is rejected, and the whole group dies, be it deaf to all else."""
    script = f"#!/bin/sh\ntrap '' TERM HUP\nsleep 600 & echo $! >'{tmp_path}/child'\nwait\n"
    with pytest.raises(ReleaseError) as refused:
        check(tmp_path / "tree", script, deadline_seconds=0.5)
    assert refused.value.reason is Reason.EXEC_CHECK_TIMEOUT
    child = int((tmp_path / "child").read_text())
    eventually(lambda: not Path(f"/proc/{child}/cmdline").exists() or is_zombie(child))


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_busy_host_is_asked_again(tmp_path: Path) -> None:
    """A release that misses the first deadline and meets the second is good."""
    mark, program = tmp_path / "asked", SPEAKING.format(product="journeyman", version="0.2.0")
    check(
        tmp_path / "tree",
        f"{program}[ -e '{mark}' ] || {{ touch '{mark}'; sleep 600; }}\n",
        deadline_seconds=0.5,
    )
    assert mark.exists()


def test_a_kill_from_outside_proves_nothing(tmp_path: Path) -> None:
    """SIGKILL is the kernel or Android short of memory, and passes; on macOS it is a bad signature."""
    with pytest.raises(HostError) as refused:
        check(tmp_path, "#!/bin/sh\nkill -KILL $$\n")
    assert refused.value.is_transient


def test_a_busy_program_is_tried_again(tmp_path: Path) -> None:
    """A file that somebody still writes to for a moment is no bad release."""
    SmallRelease().lay_out(tmp_path)
    program = tmp_path / ENTRY_POINT
    writer = program.open("ab")

    class ReleasingClock(SystemClock):
        def wait(self, seconds: float) -> None:
            writer.close()

    SubprocessExecCheck(ReleasingClock()).run(tmp_path, product="journeyman", version=VERSION)
    assert writer.closed


def test_a_program_that_stays_busy_is_the_hosts_fault(tmp_path: Path) -> None:
    """After a second of trying, the update is put off without blaming the release."""
    SmallRelease().lay_out(tmp_path)
    began = time.monotonic()
    with (tmp_path / ENTRY_POINT).open("ab"), pytest.raises(UpdaterError) as refused:
        SubprocessExecCheck(SystemClock()).run(tmp_path, product="journeyman", version=VERSION)
    assert not refused.value.rejects
    assert time.monotonic() - began < 5


def test_secrets_of_the_updater_do_not_reach_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release sees PATH, HOME, LANG and what it is meant to see, and nothing else."""
    monkeypatch.setenv("JOURNEYMAN_TOKEN", "secret")
    script = f"#!/bin/sh\nenv >'{tmp_path}/env'\nexit 1\n"
    with pytest.raises(ReleaseError):
        check(tmp_path / "tree", script)
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names <= {"PATH", "HOME", "LANG", "JOURNEYMAN_PYTHON", "PWD", "OLDPWD", "SHLVL", "_"}


def test_the_service_user_is_who_is_asked() -> None:
    """With a service user, the release runs as that user and in no group of ours."""
    if os.geteuid() != 0:
        pytest.skip("cannot run here: only root becomes another user")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        tree.chmod(0o755)
        SmallRelease(program="#!/bin/sh\necho $(id -un) $(id -Gn) >&2; exit 1\n").lay_out(tree)
        with pytest.raises(ReleaseError, match="nobody nogroup"):
            SubprocessExecCheck(SystemClock(), user="nobody").run(tree, product="journeyman", version=VERSION)


def test_a_closed_door_is_the_hosts_fault() -> None:
    """A folder that keeps the service's user out is no evidence against the release."""
    if os.geteuid() != 0:
        pytest.skip("cannot run here: only root becomes another user")
    with tempfile.TemporaryDirectory() as folder:
        SmallRelease().lay_out(Path(folder) / "tree")
        with pytest.raises(HostError) as refused:
            SubprocessExecCheck(SystemClock(), user="nobody").run(
                Path(folder) / "tree", product="journeyman", version=VERSION
            )
    assert refused.value.reason is Reason.NO_EXEC


def test_a_program_without_the_execute_bit_rejects_the_release(tmp_path: Path) -> None:
    """Modes come from the archive's execute bits, so a missing one is the release's fault."""
    SmallRelease().lay_out(tmp_path)
    (tmp_path / ENTRY_POINT).chmod(0o644)
    with pytest.raises(ReleaseError) as refused:
        SubprocessExecCheck(SystemClock()).run(tmp_path, product="journeyman", version=VERSION)
    assert refused.value.reason is Reason.EXEC_CHECK_FAILED


@pytest.fixture
def noexec(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small file system that forbids execution."""
    with mounted(tmp_path / "noexec", "noexec") as folder:
        yield folder


def test_a_noexec_root_is_the_hosts_fault(noexec: Path) -> None:
    """A mount that forbids execution is named as such, and no evidence against the release."""
    with pytest.raises(HostError) as refused:
        check(noexec / "tree")
    assert refused.value.reason is Reason.NO_EXEC
