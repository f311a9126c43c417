"""What can be known of this host before a byte is fetched."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from journeyman_updater.adapters.host_facts import check_state_root, service_user, this_host
from journeyman_updater.errors import HostError, Reason
from tests.support.mounts import mounted, remount


def test_this_host_is_named_in_the_words_of_the_wire() -> None:
    """The processor is spelled as Go spells it, and the Python is the running one."""
    host = this_host()
    assert host.os == sys.platform
    assert host.arch in {"amd64", "arm64"} or host.arch == platform.machine().lower()
    assert host.python == sys.version_info[:2]


def test_a_good_folder_passes(tmp_path: Path) -> None:
    """A writable folder with room is good, and nothing is left in it."""
    check_state_root(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_no_space(tmp_path: Path) -> None:
    """A file system that is too small is found out before the fetch, with how much is missing."""
    with mounted(tmp_path / "small", "size=80m") as folder:
        check_state_root(folder, 1)
        with pytest.raises(HostError, match="MiB") as refused:
            check_state_root(folder, 20 * 1024**2)
    assert refused.value.reason is Reason.INSUFFICIENT_DISK


@pytest.mark.slow
def test_no_inodes(tmp_path: Path) -> None:
    """A file system with room for bytes and for no more files is full, too."""
    with mounted(tmp_path / "small", "size=200m,nr_inodes=2") as folder:
        (folder / "last").touch()
        with pytest.raises(HostError) as refused:
            check_state_root(folder, 1)
    assert refused.value.reason is Reason.INSUFFICIENT_DISK


@pytest.mark.slow
def test_a_noexec_root(tmp_path: Path) -> None:
    """A file system that forbids execution is found out before the fetch."""
    with mounted(tmp_path / "noexec", "noexec") as folder, pytest.raises(HostError) as refused:
        check_state_root(folder, 1)
    assert refused.value.reason is Reason.NO_EXEC


@pytest.mark.slow
def test_a_read_only_root(tmp_path: Path) -> None:
    """A read-only file system is found out before the fetch."""
    with mounted(tmp_path / "ro", "size=200m") as folder:
        remount(folder, "ro")
        with pytest.raises(HostError) as refused:
            check_state_root(folder, 1)
    assert refused.value.reason is Reason.NOT_WRITABLE


@pytest.mark.slow
def test_another_users_root(tmp_path: Path) -> None:
    """An updater that runs as another user than the owner would leave files that lock the owner out."""
    with mounted(tmp_path / "other", "size=200m,uid=12345") as folder, pytest.raises(HostError) as refused:
        check_state_root(folder, 1)
    assert refused.value.reason is Reason.NOT_WRITABLE
    assert "12345" in refused.value.message


@pytest.mark.slow
def test_the_service_user_owns_the_folder_of_the_running_agent(tmp_path: Path) -> None:
    """Root learns from run/ who the service is; a user's own install, or a missing folder, is nobody else."""
    assert service_user(tmp_path) is None
    assert service_user(tmp_path / "missing") is None
    with mounted(tmp_path / "run", "size=1m,uid=65534") as folder:
        assert service_user(folder) == "nobody"
    with mounted(tmp_path / "run2", "size=1m,uid=12345") as folder:
        assert service_user(folder) is None
