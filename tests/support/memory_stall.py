"""Work that waits for memory: more than fits into a real limit, read again and again.

    python memory_stall.py CGROUP FILE

Joins the cgroup.  Four processes then read all of the file, which does not fit, beside memory that they keep.
They do so in the first tenth of each second, so that the agents of other tests are not held back by it.
"""

from __future__ import annotations

import itertools
import mmap
import os
import sys
import threading
import time
from pathlib import Path

MIB = 1 << 20
LIMIT_BYTES = 64 * MIB
FILE_BYTES = 160 * MIB
KEPT_BYTES = MIB
READERS = 4
SHARE = 0.1
PRESSURE = Path("/proc/pressure/memory")


def full_stall_microseconds() -> int:
    """How long, since the boot, all work of this host has waited for memory; skips where nobody counts."""
    # Imported here, as the program itself has little memory.
    import pytest

    try:
        text = PRESSURE.read_text()
    except OSError as error:
        pytest.skip(f"cannot run here: {PRESSURE}: {error.strerror}")
    return int(text.splitlines()[1].rpartition("total=")[2])


def file_to_read(folder: Path) -> Path:
    """A file that is on the disk and not in memory, so that whoever reads it pays for its pages."""
    path = folder / "more-than-fits"
    with path.open("wb") as file:
        for _ in range(FILE_BYTES // MIB):
            file.write(os.urandom(4096) * (MIB // 4096))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def main() -> None:
    Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
    for _ in range(READERS - 1):
        if os.fork() == 0:
            break
    never = threading.Event()
    kept = bytearray(os.urandom(KEPT_BYTES))
    with Path(sys.argv[2]).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        for offset in itertools.cycle(range(0, FILE_BYTES, mmap.PAGESIZE)):
            kept[offset % KEPT_BYTES] = pages[offset]
            past = time.monotonic() % 1
            if past > SHARE:
                never.wait(1 - past)


if __name__ == "__main__":
    main()
