"""Real programs from Debian that some tests want to talk to."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest


def ensure_debian_package(package: str, program: str | None = None) -> str:
    """Returns the path of a program, and installs its Debian package first where that is possible.

    Args:
        package: the name of the package.
        program: the name of the program, if it is another.

    Skips the test where the program is missing and cannot be installed.
    """
    name = program or package
    found = shutil.which(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        found = _install(package, name)
    if found is None:
        pytest.skip(f"cannot run here: {name} is missing and cannot be installed (Debian package {package})")
    return found


def _install(package: str, program: str) -> str | None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # apt-get gives up where another one works, and tests run in several processes.
    with Path("/var/lock/journeyman-tests-apt").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for verb in ("install", "update", "install"):
            found = shutil.which(program)
            if found is not None:
                return found
            tail = ["-y", "-qq", package] if verb == "install" else ["-qq"]
            subprocess.run(["apt-get", verb, *tail], env=environment, capture_output=True, check=False)
    return shutil.which(program)
