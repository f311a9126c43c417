"""The FileSystem port: the real adapter and the crash suite's disk obey one contract."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.ports import FileSystem
from tests.crash.disk import CrashDisk


@pytest.fixture(params=["real", "crash"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    """Both implementations, on an empty folder."""
    return RealFileSystem() if request.param == "real" else CrashDisk(tmp_path)


def test_files_are_written_appended_renamed_and_removed(files: FileSystem, tmp_path: Path) -> None:
    """What is written is read; a rename replaces; what is removed is gone."""
    one, other = tmp_path / "one", tmp_path / "other"
    files.write(one, b"long content")
    files.write(one, b"abc", mode=0o644)
    files.append(one, b"def")
    files.append(other, b"x")
    files.fsync(one)
    files.fsync_directory(tmp_path)
    assert (files.read(one), files.size(one), files.names(tmp_path)) == (b"abcdef", 6, ["one", "other"])
    files.rename(one, other)
    assert (files.read(other), files.names(tmp_path)) == (b"abcdef", ["other"])
    files.unlink(other)
    assert files.names(tmp_path) == []


def test_folders_are_made_and_removed(files: FileSystem, tmp_path: Path) -> None:
    """A folder is made once, is seen as one, and is removed only when it is empty."""
    folder = tmp_path / "folder"
    files.mkdir(folder)
    assert files.is_directory(folder)
    assert files.size(folder) is None
    with pytest.raises(FileExistsError):
        files.mkdir(folder)
    files.write(folder / "file", b"x")
    with pytest.raises(OSError, match="not empty"):
        files.rmdir(folder)
    files.unlink(folder / "file")
    files.rmdir(folder)
    assert not files.is_directory(folder)


def test_what_is_not_there_is_said_to_be_not_there(files: FileSystem, tmp_path: Path) -> None:
    """Reading and removing raise FileNotFoundError; questions have an answer."""
    gone = tmp_path / "gone"
    for act in (files.read, files.unlink, files.fsync):
        with pytest.raises(FileNotFoundError):
            act(gone)
    assert (files.size(gone), files.names(gone), files.is_directory(gone)) == (None, [], False)


@pytest.mark.skipif(sys.platform == "win32", reason="cannot run here: no symbolic links")
def test_links_are_never_followed(tmp_path: Path) -> None:
    """The real adapter refuses to read, append or flush through a symbolic link, and writes in its place."""
    files, target, link = RealFileSystem(), tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"untouched")
    link.symlink_to(target)
    for act in (
        lambda: files.read(link),
        lambda: files.append(link, b"x"),
        lambda: files.fsync(link),
    ):
        with pytest.raises(OSError, match=r"symbolic links|loop"):
            act()
    assert files.size(link) is None
    files.write(link, b"x")
    assert not link.is_symlink()
    assert (link.read_bytes(), target.read_bytes()) == (b"x", b"untouched")


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    """A file gets exactly the mode that was asked for, under any umask."""
    before = os.umask(0o077)
    try:
        RealFileSystem().write(tmp_path / "file", b"", mode=0o755)
        RealFileSystem().mkdir(tmp_path / "folder", mode=0o755)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755


def test_the_disk_loses_what_was_not_flushed(tmp_path: Path) -> None:
    """The model itself: names need their folder's fsync, content its own, and the two are independent."""
    disk = CrashDisk(tmp_path)
    disk.write(tmp_path / "flushed", b"content")
    disk.fsync(tmp_path / "flushed")
    disk.fsync_directory(tmp_path)
    disk.append(tmp_path / "flushed", b" and more")
    disk.write(tmp_path / "new", b"content")
    disk.fsync(tmp_path / "new")
    kind, worst = disk.after_cut(lambda ways: 0), disk.after_cut(lambda ways: ways - 1)
    assert (kind.names(tmp_path), kind.read(tmp_path / "flushed")) == (
        ["flushed", "new"],
        b"content and more",
    )
    assert (worst.names(tmp_path), worst.read(tmp_path / "flushed")) == (["flushed"], b"content" + b"\0" * 9)


def test_a_whole_tree_is_flushed(files: FileSystem, tmp_path: Path) -> None:
    """Everything below a folder survives the loss of all that was not flushed, and nothing is changed."""
    tree = tmp_path / "tree"
    files.mkdir(tree)
    files.mkdir(tree / "inner")
    files.write(tree / "inner" / "file", b"content", mode=0o755)
    files.sync_tree(tree)
    if isinstance(files, CrashDisk):
        files.fsync_directory(tmp_path)
        files = files.after_cut(lambda ways: ways - 1)
    assert files.read(tree / "inner" / "file") == b"content"
    with pytest.raises(OSError, match="nowhere"):
        files.sync_tree(tmp_path / "nowhere")


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="cannot run here: no /dev/shm")
def test_where_syncfs_is_not_known_to_flush_each_file_is_flushed() -> None:
    """On a file system of another type, as the one in memory, the tree is walked; a link is refused."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        tree = Path(name)
        (tree / "inner").mkdir()
        (tree / "inner" / "file").write_bytes(b"content")
        RealFileSystem().sync_tree(tree)
        (tree / "inner" / "link").symlink_to("file")
        with pytest.raises(OSError, match="link"):
            RealFileSystem().sync_tree(tree)
