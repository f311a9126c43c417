"""A writer that is killed by its kernel between the first byte of a durable file and its name."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

# The signal of a file that grows too large, which Python ignores, ends a process like a SIGKILL.
_PROGRAM = """
import resource, signal, sys
from journeyman_updater.contract.durable import write_durably
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
write_durably(sys.argv[1], bytes(100))
"""


def kill_a_writer_of(path: Path) -> Path:
    """Returns what it has left of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = set(path.parent.iterdir())
    done = subprocess.run([sys.executable, "-c", _PROGRAM, path], capture_output=True, check=False)
    assert done.returncode == -signal.SIGXFSZ, done.stderr
    [left] = set(path.parent.iterdir()) - before
    assert left != path
    return left
