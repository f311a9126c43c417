"""How sensors reach the host: small files below a root, and programs with a deadline.

Nothing here raises for what a host lacks or refuses: the quality says it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from journeyman.model.readings import Measurement, Quality, missing

LONGEST_FILE_BYTES = 256 * 1024
# A child that left our group can keep the pipe open after the kill; it is not waited for.
LAST_WORDS_SECONDS = 0.5

_DENIED = {errno.EACCES, errno.EPERM}
_UNSUPPORTED = {errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV, errno.ENXIO}


@dataclass(frozen=True)
class Text:
    """What was read, or why it was not."""

    value: str | None
    quality: Quality = Quality.OK
    detail: str = ""


def refused(error: OSError) -> Text:
    """Why the host did not let us read."""
    detail = error.strerror or str(error)
    if error.errno in _DENIED:
        return Text(None, Quality.DENIED, detail)
    if error.errno in _UNSUPPORTED:
        return Text(None, Quality.UNSUPPORTED, detail)
    return Text(None, Quality.ERROR, detail)


class HostFiles:
    """Files of the host.

    Args:
        root: the root of its file system; another folder in tests.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = str(root)
        self._kept: dict[str, Text] = {}

    def text(self, path: str) -> Text:
        """The content of a small file, stripped; `path` is relative to the root."""
        try:
            descriptor = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # noqa: PTH118
            try:
                data = os.read(descriptor, LONGEST_FILE_BYTES)
            finally:
                os.close(descriptor)
        except OSError as error:
            return refused(error)
        return Text(data.decode(errors="replace").strip("\x00 \n\t"))

    def constant(self, path: str) -> Text:
        """The same for a file that cannot change while the host is up, read once; failures are not kept."""
        found = self._kept.get(path)
        if found is None:
            found = self.text(path)
            if found.value is not None:
                self._kept[path] = found
        return found

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where it cannot be listed."""
        try:
            return sorted(os.listdir(os.path.join(self._root, folder)))  # noqa: PTH118, PTH208
        except OSError:
            return []

    def path(self, path: str) -> Path:
        """The real path of a file of the host."""
        return Path(self._root, path)


def number(text: Text, scale: float = 1.0) -> float | None:
    """The number that a file holds, times `scale`; None where it holds none."""
    try:
        return None if text.value is None else float(text.value) * scale
    except ValueError:
        return None


def no_number(name: str, unit: str, source: str, text: Text) -> Measurement:
    """The measurement of a file that holds no number."""
    if text.value is None:
        return missing(name, unit, source, text.quality, text.detail)
    return missing(name, unit, source, Quality.ERROR, f"{text.value[:40]!r} is no number")


def plausible(
    name: str, value: float, unit: str, source: str, *, low: float, high: float, detail: str = ""
) -> Measurement:
    """A measurement that is suspect outside its band, and then has no value that anybody could believe."""
    if low <= value <= high:
        return Measurement(name, value, unit, source, detail=detail)
    return missing(name, unit, source, Quality.SUSPECT, f"{value:g} is not between {low:g} and {high:g}")


# Runs a program: its arguments and a deadline in seconds; returns what it printed.
Run = Callable[[Sequence[str], float], Text]


def run_command(argv: Sequence[str], deadline_seconds: float) -> Text:
    """Runs a program in a group of its own and returns what it printed on stdout.

    After the deadline the whole group is killed.  Returns UNSUPPORTED where there is no such program,
    TIMEOUT after the deadline, and ERROR where it failed.
    """
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        return refused(error)
    try:
        out, err = child.communicate(timeout=deadline_seconds)
    except subprocess.TimeoutExpired:
        _end(child)
        return Text(None, Quality.TIMEOUT, f"{argv[0]} took more than {deadline_seconds:g} s")
    if child.returncode != 0:
        said = err.decode(errors="replace").strip().splitlines()
        return Text(None, Quality.ERROR, said[-1] if said else f"{argv[0]} exited {child.returncode}")
    return Text(out.decode(errors="replace"))


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.communicate(timeout=LAST_WORDS_SECONDS)
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()
    child.wait()
