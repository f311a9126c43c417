"""Where a shim puts the output of its worker: bounded logs, and a copy for whoever waits for it."""

from __future__ import annotations

import contextlib
import os
import selectors

CHUNK_BYTES = 64 * 1024


class BoundedLog:
    """A log file that never holds more than its limit: at half of it, the file becomes `<name>.1`.

    Args:
        path: the log file; an existing one is continued.
        limit_bytes: what both halves may hold together.
    """

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path = path
        self._half = max(limit_bytes // 2, 1)
        self._descriptor = self._open()
        self._size = os.fstat(self._descriptor).st_size

    def _open(self, how: int = 0) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path, flags | how, 0o600)

    def write(self, data: bytes) -> None:
        """Appends `data`.  What a full disk refuses is lost: the worker matters more than its log."""
        view = memoryview(data)
        while view:
            if self._size >= self._half:
                self._rotate()
            part = view[: self._half - self._size]
            view = view[len(part) :]
            with contextlib.suppress(OSError):
                os.write(self._descriptor, part)
            self._size += len(part)

    def _rotate(self) -> None:
        os.close(self._descriptor)
        with contextlib.suppress(OSError):
            os.replace(self._path, f"{self._path}.1")
        try:
            # Where the rename failed, the older half is given up rather than the bound.
            self._descriptor = self._open(os.O_TRUNC)
        except OSError:
            self._descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._size = 0


class Output:
    """One of the worker's two streams: kept in a log, and copied to a fifo as long as somebody reads there.

    Args:
        pipe: the end of the worker's pipe that is read.
        log: where the stream is kept.
        copy: a fifo, open for writing without blocking, or None.
    """

    def __init__(self, pipe: int, log: BoundedLog, copy: int | None) -> None:
        self._pipe = pipe
        self._log = log
        self._copy = copy
        self._watched = pipe
        self.pending = b""

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Has the selector wait for this stream, with us as the data of its key."""
        selector.register(self._pipe, selectors.EVENT_READ, self)

    def move(self, selector: selectors.BaseSelector) -> None:
        """Moves what can be moved now.

        A reader that is slow makes the worker wait, as a pipe would; one that has gone is forgotten.
        """
        if not self.pending and not self._read():
            selector.unregister(self._pipe)
            self.close_copy()
            return
        gone = not self._copy_pending()
        watched = self._copy if self.pending and self._copy is not None else self._pipe
        if watched != self._watched:
            selector.unregister(self._watched)
            event = selectors.EVENT_READ if watched == self._pipe else selectors.EVENT_WRITE
            selector.register(watched, event, self)
            self._watched = watched
        if gone:
            self.close_copy()

    def close_copy(self) -> None:
        """Lets the reader of the copy see its end."""
        if self._copy is not None:
            os.close(self._copy)
            self._copy = None

    def _read(self) -> bool:
        data = os.read(self._pipe, CHUNK_BYTES)
        self._log.write(data)
        self.pending = data if self._copy is not None else b""
        return bool(data)

    def _copy_pending(self) -> bool:
        """Whether somebody still reads the copy."""
        if not self.pending or self._copy is None:
            return True
        try:
            self.pending = self.pending[os.write(self._copy, self.pending) :]
        except BlockingIOError:
            return True
        except OSError:
            self.pending = b""
            return False
        return True
