"""Runtimes that are no packages of ours: a cache keeps them, and every tier uses what is there.

What is fetched in a minute the default tier puts there, too; the rest the full tier alone.

~/.cache/journeyman-tests/runtimes/
    llama-server/      llama.cpp's program with its libraries, unpacked from packages of Debian
    mlx/               a virtual environment with mlx_lm
    llama-cpp-python/  another one with llama-cpp-python, compiled: ten to twenty minutes on two cores
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from journeyman.adapters.model_store import cache_folder

# A release of Debian whose llama.cpp is packaged; its own libc comes along, as the host's is older.
SUITE = "forky"
PACKAGES = (
    *("llama.cpp-tools", "libllama0", "libggml0", "libc6", "libgcc-s1", "libstdc++6", "libgomp1"),
    *("libssl3t64", "libzstd1", "zlib1g"),
)
QUICK = {"llama-server", "mlx"}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
LIBRARIES = "root/usr/lib/x86_64-linux-gnu"
START = """\
#!/bin/sh
here={here}
export GGML_BACKEND_PATH=$here/{libraries}/ggml/backends0/libggml-cpu-{processor}.so
libraries=$here/{libraries}
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries:$libraries/llama:$libraries/ggml" \\
    "$here/root/usr/bin/llama-server" "$@"
"""
# What the server does not need takes half of the compilation.
CMAKE_ARGS = "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF"
LONGEST_BUILD_SECONDS = 3600


def cached_runtime(name: str) -> str:
    """The program of a runtime in the cache, or an empty string; tiers with the time put it there."""
    program, make = RUNTIMES[name]
    folder = cache_folder(os.environ).with_name("journeyman-tests") / "runtimes"
    tiers = {"default", "full"} if name in QUICK else {"full"}
    if os.environ.get("JOURNEYMAN_TEST_TIER") in tiers:
        folder.mkdir(parents=True, exist_ok=True)
        # Tests run in several processes.
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / name).exists():
                _make(folder / name, make)
    found = folder / name / program
    return str(found) if found.exists() else ""


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    """Makes a folder, or none of it where that fails: no network, no compiler, another kind of host."""
    try:
        folder.mkdir()
        make(folder)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no {folder.name}: {error}", file=sys.stderr)  # noqa: T201  The skip that follows is explained by it.
        shutil.rmtree(folder)


def _llama_server(folder: Path) -> None:
    if platform.machine() != "x86_64" or not (shutil.which("apt-get") and Path(KEYRING).exists()):
        raise FileNotFoundError("it is fetched from packages of Debian for amd64")
    for made in ("lists/partial", "cache/archives/partial", "debs", "root"):
        (folder / made).mkdir(parents=True)
    (folder / "status").touch()
    sources = folder / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {_debian_archive()} {SUITE} main\n")
    # Nothing of the host's own package manager is touched.
    places = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": folder,
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
    }
    options = [word for key, value in places.items() for word in ("-o", f"{key}={value}")]
    _run(["apt-get", *options, "-qq", "update"], folder)
    _run(["apt-get", *options, "-qq", "download", *PACKAGES], folder / "debs")
    for package in sorted((folder / "debs").iterdir()):
        _run(["dpkg-deb", "-x", str(package), str(folder / "root")], folder)
    processor = "haswell" if "avx2" in Path("/proc/cpuinfo").read_text() else "x64"
    start = folder / "llama-server"
    start.write_text(START.format(here=folder, libraries=LIBRARIES, processor=processor))
    start.chmod(0o755)
    _run([str(start), "--version"], folder)


def _debian_archive() -> str:
    """Where this host gets its own packages."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    for address in shown.stdout.split():
        if address.rstrip("/").endswith("/debian"):
            return address
    raise FileNotFoundError("apt-get knows no archive of Debian here")


def _mlx(folder: Path) -> None:
    _environment(folder, "mlx-lm>=0.28", "mlx[cpu]" if sys.platform == "linux" else "mlx")


def _llama_cpp_python(folder: Path) -> None:
    _environment(folder, "llama-cpp-python[server]>=0.3.7")


def _environment(folder: Path, *requirements: str) -> None:
    _run([sys.executable, "-m", "venv", str(folder)], folder)
    _run([str(folder / "bin" / "pip"), "install", "--quiet", *requirements], folder)


def _run(command: list[str], folder: Path) -> None:
    environ = {**os.environ, "CMAKE_ARGS": CMAKE_ARGS}
    subprocess.run(
        command, cwd=folder, env=environ, check=True, capture_output=True, timeout=LONGEST_BUILD_SECONDS
    )


RUNTIMES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "llama-server": ("llama-server", _llama_server),
    "mlx": ("bin/mlx_lm.server", _mlx),
    "llama-cpp-python": ("bin/python", _llama_cpp_python),
}
