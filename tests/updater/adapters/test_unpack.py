"""Nothing that an archive says of itself is believed."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.adapters.pack import pack
from journeyman_updater.adapters.unpack import TarUnpacker
from journeyman_updater.errors import HostError, Reason, ReleaseError
from journeyman_updater.ports import UnpackLimits
from tests.simulator.releases import SmallRelease, forge, member


def zipped() -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("bin/journeyman", "#!/bin/sh")
    return raw.getvalue()


def sparse() -> bytes:
    """A member that claims a terabyte of holes, in the old GNU way."""
    info = tarfile.TarInfo("holes")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"00000000000\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return gzip.compress(bytes(header) + bytes(1024))


def huge_header() -> bytes:
    """An extended header that wants a gigabyte of memory."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 1024**3
    return gzip.compress(info.tobuf() + bytes(4096))


GOOD = member("bin/journeyman", b"#!/bin/sh\n", mode=0o755)
CASES = {
    "raw ELF": (b"\x7fELF\x02\x01\x01" + bytes(600), Reason.WRONG_FORMAT),
    "raw Mach-O": (b"\xcf\xfa\xed\xfe" + bytes(600), Reason.WRONG_FORMAT),
    "zip": (zipped(), Reason.WRONG_FORMAT),
    "web page": (b"<!DOCTYPE html><html></html>", Reason.WRONG_FORMAT),
    "empty": (b"", Reason.WRONG_FORMAT),
    "compressed executable": (gzip.compress(b"\x7fELF" + bytes(600)), Reason.WRONG_FORMAT),
    "gzip of a gzip": (gzip.compress(forge(GOOD)), Reason.COMPRESSED),
    "truncated": (forge(GOOD, member("big", os.urandom(50_000)))[:-20_000], Reason.BAD_ARCHIVE),
    "damaged": (gzip.compress(bytes(257) + b"ustar" + bytes(9000)), Reason.BAD_ARCHIVE),
    "decompression bomb": (forge(member("zeros", bytes(20 * 1024**2))), Reason.DECOMPRESSION_BOMB),
    "huge header": (huge_header(), Reason.DECOMPRESSION_BOMB),
    "too many members": (forge(*(member(f"f{n}") for n in range(101))), Reason.DECOMPRESSION_BOMB),
    "../ in member": (forge(member("../outside")), Reason.UNSAFE_PATH),
    "../ in the middle": (forge(member("lib/../../outside")), Reason.UNSAFE_PATH),
    "absolute member": (forge(member("/etc/passwd")), Reason.UNSAFE_PATH),
    "the tree itself": (forge(member(".")), Reason.UNSAFE_PATH),
    "backslash": (forge(member("..\\outside")), Reason.UNSAFE_PATH),
    "control character": (forge(member("a\nb")), Reason.UNSAFE_PATH),
    "../ in link target": (
        forge(member("link", kind=tarfile.SYMTYPE, target="../../outside")),
        Reason.UNSAFE_LINK,
    ),
    "link inside": (forge(GOOD, member("l", kind=tarfile.SYMTYPE, target="bin")), Reason.UNSAFE_LINK),
    "hard link out": (
        forge(member("link", kind=tarfile.LNKTYPE, target="/etc/passwd")),
        Reason.UNSAFE_LINK,
    ),
    "device member": (forge(member("null", kind=tarfile.CHRTYPE)), Reason.UNSAFE_TYPE),
    "pipe member": (forge(member("pipe", kind=tarfile.FIFOTYPE)), Reason.UNSAFE_TYPE),
    "sparse member": (sparse(), Reason.UNSAFE_TYPE),
    "duplicate member": (forge(GOOD, GOOD), Reason.DUPLICATE_MEMBER),
    "duplicate by case": (forge(member("Read"), member("read")), Reason.DUPLICATE_MEMBER),
    "duplicate by composition": (forge(member("\u00e9"), member("e\u0301")), Reason.DUPLICATE_MEMBER),
    "file, then folder": (forge(member("a"), member("a/b")), Reason.DUPLICATE_MEMBER),
    "folder, then file": (forge(member("a/b"), member("a")), Reason.DUPLICATE_MEMBER),
    "bad mode: setuid": (forge(member("su", mode=0o4755)), Reason.BAD_MODE),
    "bad mode: writable for all": (forge(member("open", mode=0o666)), Reason.BAD_MODE),
}


def unpacked(folder: Path, data: bytes, limits: UnpackLimits | None = None) -> Path:
    archive, tree = folder / "a.tar.gz", folder / "outer" / "tree"
    archive.write_bytes(data)
    tree.mkdir(parents=True)
    TarUnpacker(RealFileSystem()).unpack(archive, tree, limits or UnpackLimits(members=100))
    return tree


@pytest.mark.parametrize(("data", "reason"), CASES.values(), ids=CASES)
def test_a_bad_archive_is_refused_with_its_reason(data: bytes, reason: Reason, tmp_path: Path) -> None:
    """Each kind of unfit archive is evidence against the release, and writes nothing outside of its tree."""
    with pytest.raises(ReleaseError) as refused:
        unpacked(tmp_path, data)
    assert refused.value.reason is reason
    assert refused.value.rejects
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "outer"]
    assert [path.name for path in (tmp_path / "outer").iterdir()] == ["tree"]


def test_the_total_is_capped_whatever_the_ratio(tmp_path: Path) -> None:
    """No more bytes are written than the caller allows, even if they do not compress."""
    with pytest.raises(ReleaseError) as refused:
        unpacked(tmp_path, forge(member("big", os.urandom(200_000))), UnpackLimits(total_bytes=100_000))
    assert refused.value.reason is Reason.DECOMPRESSION_BOMB


def test_modes_are_ours(tmp_path: Path) -> None:
    """Folders and executables become 0755 and all else 0644, whatever narrower mode the archive says."""
    tree = unpacked(
        tmp_path,
        forge(
            member("bin", kind=tarfile.DIRTYPE, mode=0o700),
            member("bin/run", mode=0o500),
            member("lib/data", mode=0o400),
        ),
    )
    modes = {path.relative_to(tree).as_posix(): path.stat().st_mode & 0o7777 for path in tree.rglob("*")}
    assert modes == {"bin": 0o755, "bin/run": 0o755, "lib": 0o755, "lib/data": 0o644}


def test_only_an_empty_folder_is_filled(tmp_path: Path) -> None:
    """A tree is never unpacked over another one."""
    (tmp_path / "a.tar.gz").write_bytes(forge(GOOD))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "old").touch()
    with pytest.raises(HostError):
        TarUnpacker(RealFileSystem()).unpack(tmp_path / "a.tar.gz", tmp_path / "tree", UnpackLimits())


class RecordingFiles(RealFileSystem):
    """Remembers what was written and what was flushed."""

    def __init__(self) -> None:
        self.written: set[Path] = set()
        self.flushed: set[Path] = set()

    def write(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        super().write(path, data, mode=mode)
        self.written.add(path)

    def mkdir(self, path: Path, *, mode: int = 0o755) -> None:
        super().mkdir(path, mode=mode)
        self.written.add(path)

    def sync_tree(self, path: Path) -> None:
        assert set(path.rglob("*")) == self.written, "something is written after the flush"
        self.flushed = {path, *self.written}


def test_everything_is_flushed(tmp_path: Path) -> None:
    """Each file and each folder, the top one included, is durable when unpacking returns."""
    files = RecordingFiles()
    archive = SmallRelease().build(tmp_path)
    tree = tmp_path / "tree"
    tree.mkdir()
    TarUnpacker(files).unpack(archive, tree, UnpackLimits())
    assert files.written == set(tree.rglob("*"))
    assert files.flushed == files.written | {tree}


def test_packing_is_deterministic_and_comes_back_the_same(tmp_path: Path) -> None:
    """Two archives of one content are the same bytes, whatever the times, and unpack to that content."""
    first = SmallRelease().build(tmp_path / "first")
    second = SmallRelease().build(tmp_path / "second")
    for path in (tmp_path / "second").rglob("*"):
        os.utime(path, (0, 0))
    pack(tmp_path / "second" / "tree-0.2.0", second)
    assert first.read_bytes() == second.read_bytes()
    tree = unpacked(tmp_path, first.read_bytes())
    for path in (tmp_path / "first" / "tree-0.2.0").rglob("*"):
        copy = tree / path.relative_to(tmp_path / "first" / "tree-0.2.0")
        assert copy.is_dir() if path.is_dir() else copy.read_bytes() == path.read_bytes()


def test_a_link_is_never_packed(tmp_path: Path) -> None:
    """What no host would unpack is refused when the release is built."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="link is neither"):
        pack(tmp_path / "tree", tmp_path / "a.tar.gz")
