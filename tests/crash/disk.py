"""A disk on which the power can fail: it knows what is on the platter and what only the page cache holds.

The model is the one of POSIX and of nothing kinder.  Content is durable after fsync of the file; names are
durable after fsync of their directory.  After a cut each other change of a directory is there or not,
independently of all others, and content that was not flushed is old, empty, a prefix, zeros, or whole.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


class PowerCutError(BaseException):
    """The power fails here; nothing of the product may catch it."""


@dataclass
class File:
    """Content as programs see it, and as it is on the platter; None was never flushed."""

    data: bytes = b""
    durable: bytes | None = None

    def is_dirty(self) -> bool:
        return self.data != self.durable

    def variants(self) -> list[bytes]:
        """What may be found after a cut: the whole first, then from the kindest to the worst."""
        if not self.is_dirty():
            return [self.data]
        kept = self.durable or b""
        if self.data.startswith(kept) and kept:
            fresh = self.data[len(kept) :]
            return [self.data, kept, kept + fresh[: len(fresh) // 2], kept + b"\0" * len(fresh)]
        found = [self.data, kept, b"", self.data[: len(self.data) // 2], b"\0" * len(self.data)]
        return list(dict.fromkeys(found))


@dataclass
class Folder:
    """Names as programs see them, as they are on the platter, and the changes between the two, in order."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[dict[str, Node | None]] = field(default_factory=list)

    def change(self, change: dict[str, Node | None]) -> None:
        self.pending.append(change)
        _apply(self.names, change)


Node = File | Folder


def _apply(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _cloned_folder(folder: Folder, seen: dict[int, Node]) -> Folder:
    """Nodes that stand in several places, as after an unlink that is not durable, stay one node."""
    copy = Folder()
    seen[id(folder)] = copy
    copy.names = {name: _cloned(node, seen) for name, node in folder.names.items()}
    copy.durable = {name: _cloned(node, seen) for name, node in folder.durable.items()}
    copy.pending = [
        {name: _cloned(node, seen) if node else None for name, node in change.items()}
        for change in folder.pending
    ]
    return copy


def _cloned(node: Node, seen: dict[int, Node]) -> Node:
    if id(node) not in seen:
        seen[id(node)] = (
            _cloned_folder(node, seen) if isinstance(node, Folder) else File(node.data, node.durable)
        )
    return seen[id(node)]


def _digest(folder: Folder, update: Callable[[bytes], None]) -> None:
    for name, node in sorted(folder.names.items()):
        if isinstance(node, File):
            update(f"{name}\0{len(node.data)}\0".encode() + node.data)
        else:
            update(f"{name}/".encode())
            _digest(node, update)
            update(b"/")


class CrashDisk:
    """Implements the port FileSystem, counts each point at which the power can fail, and fails at one.

    Args:
        root: the folder that exists from the start.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = Folder()
        self.points: list[str] = []
        self.cut_at: int | None = None
        self.dropped_fsync: int | None = None
        self.fsyncs = 0

    def point(self, what: str) -> None:
        """A moment at which the power can fail; also called for what is not a file: spawns and signals."""
        if self.cut_at == len(self.points):
            raise PowerCutError(what)
        self.points.append(what)

    def told(self) -> None:
        """Somebody outside is told how a run ended; a disk by itself does not care."""

    # The port.

    def read(self, path: Path, *, limit_bytes: int | None = None) -> bytes:
        node = self._node(path)
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, "a folder", str(path))
        if limit_bytes is not None and len(node.data) > limit_bytes:
            raise OSError(errno.EFBIG, "too large", str(path))
        return node.data

    def write(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        self.point(f"write {self._short(path)}")
        # O_TRUNC and write are two moments; the torn variants of the content cover what lies between them.
        self._file(path).data = data

    def append(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        self.point(f"append {self._short(path)}")
        file = self._file(path)
        file.data += data

    def fsync(self, path: Path) -> None:
        self.point(f"fsync {self._short(path)}")
        node = self._node(path)
        if isinstance(node, File) and self._is_kept():
            node.durable = node.data

    def fsync_directory(self, path: Path) -> None:
        self.point(f"fsync {self._short(path)}/")
        folder = self._folder(path)
        if self._is_kept():
            folder.durable = dict(folder.names)
            folder.pending = []

    def sync_tree(self, path: Path) -> None:
        self.point(f"fsync {self._short(path)}/**")
        if self._is_kept():
            self._settle(self._folder(path))

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "the port renames within one folder"
        self.point(f"rename {self._short(target)}")
        node = self._node(source)
        self._folder(source.parent).change({source.name: None, target.name: node})

    def unlink(self, path: Path) -> None:
        node = self._node(path)
        assert isinstance(node, File)
        self.point(f"unlink {self._short(path)}")
        self._folder(path.parent).change({path.name: None})

    def mkdir(self, path: Path, *, mode: int = 0o755) -> None:
        if path.name in self._folder(path.parent).names:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        self.point(f"mkdir {self._short(path)}")
        self._folder(path.parent).change({path.name: Folder()})

    def rmdir(self, path: Path) -> None:
        if self._folder(path).names:
            raise OSError(errno.ENOTEMPTY, "not empty", str(path))
        self.point(f"rmdir {self._short(path)}")
        self._folder(path.parent).change({path.name: None})

    def names(self, path: Path) -> list[str]:
        try:
            return sorted(self._folder(path).names)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_directory(self, path: Path) -> bool:
        try:
            return isinstance(self._node(path), Folder)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def size(self, path: Path) -> int | None:
        try:
            node = self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return len(node.data) if isinstance(node, File) else None

    # The cut.

    def settle(self) -> None:
        """Everything reaches the platter, as after a long while."""
        self._settle(self.top)

    def _settle(self, top: Folder) -> None:
        for folder in self._folders(top):
            folder.durable, folder.pending = dict(folder.names), []
            for node in folder.names.values():
                if isinstance(node, File):
                    node.durable = node.data

    def undecided(self) -> list[int]:
        """For each thing that a cut leaves to chance, in a fixed order, in how many ways it can end."""
        counts: list[int] = []

        def count(ways: int) -> int:
            counts.append(ways)
            return 0

        self.after_cut(count)
        return counts

    def after_cut(self, choose: Callable[[int], int]) -> CrashDisk:
        """What the next boot finds.

        Args:
            choose: is asked for each undecided thing, with the number of its ways; 0 is the kind one, in
                which the change had reached the platter.
        """
        image = CrashDisk(self.root)
        image.top = self._survivor(self.top, choose, {})
        # /run is in memory, and the agent's own files there mean nothing after a boot.
        image.top.names.pop("run", None)
        image.top.durable.pop("run", None)
        return image

    def _survivor(self, folder: Folder, choose: Callable[[int], int], seen: dict[int, Node]) -> Folder:
        names = dict(folder.durable)
        for change in folder.pending:
            if choose(2) == 0:
                _apply(names, change)
        found: dict[str, Node] = {}
        for name, node in sorted(names.items()):
            if id(node) not in seen:
                if isinstance(node, Folder):
                    seen[id(node)] = self._survivor(node, choose, seen)
                else:
                    variants = node.variants()
                    data = variants[choose(len(variants)) if len(variants) > 1 else 0]
                    seen[id(node)] = File(data, data)
            found[name] = seen[id(node)]
        return Folder(found, dict(found))

    def frozen(self) -> CrashDisk:
        """The same disk at this moment, with all that is pending; it shares nothing with this one."""
        copy = CrashDisk(self.root)
        copy.top = _cloned_folder(self.top, {})
        return copy

    def fingerprint(self) -> bytes:
        """The same for two disks on which programs see the same."""
        digest = hashlib.sha256()
        _digest(self.top, digest.update)
        return digest.digest()

    # Helpers.

    def _is_kept(self) -> bool:
        self.fsyncs += 1
        return self.dropped_fsync != self.fsyncs - 1

    def _short(self, path: Path) -> str:
        return str(path)[len(str(self.root)) + 1 :]

    def _node(self, path: Path) -> Node:
        node: Node = self.top
        for part in filter(None, self._short(path).split("/")):
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(path))
            if part not in node.names:
                raise FileNotFoundError(errno.ENOENT, "not there", str(path))
            node = node.names[part]
        return node

    def _folder(self, path: Path) -> Folder:
        node = self._node(path)
        if not isinstance(node, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(path))
        return node

    def _file(self, path: Path) -> File:
        folder = self._folder(path.parent)
        found = folder.names.get(path.name)
        if isinstance(found, File):
            return found
        created = File()
        folder.change({path.name: created})
        return created

    def _folders(self, folder: Folder) -> Iterator[Folder]:
        yield folder
        for node in folder.names.values():
            if isinstance(node, Folder):
                yield from self._folders(node)
