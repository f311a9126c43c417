"""Real releases for tests: one is built by scripts/release, others are derived from it without a network.

The derived ones differ in what they say their version is and, for bad ones, in one line of their code.  They
leave out the native modules of other Pythons, and find the model server's 100 MB library where the tests do.
"""

from __future__ import annotations

import compileall
import hashlib
import importlib.util
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.adapters.pack import pack
from journeyman_updater.adapters.unpack import TarUnpacker
from journeyman_updater.model.manifest import MANIFEST_NAME, Manifest, ManifestFile
from journeyman_updater.model.release import Sha256, VersionId
from journeyman_updater.ports import UnpackLimits

REPOSITORY = Path(__file__).resolve().parent.parent.parent
BASE_VERSION = "1.0.0"
BUILD_SECONDS = 600
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
THIS_PYTHON = f"cpython-{sys.version_info.major}{sys.version_info.minor}"

# Says who it is, and ends as soon as it is to run.
CRASHES = "raise RuntimeError('a bad release')"
# Starts, and never comes to READY.
HANGS = "import signal; signal.pause()"
# Comes to READY, and one of its loops never does a thing.
STANDS_STILL = """import asyncio
from journeyman.loops.task_loop import TaskLoop
TaskLoop.run = lambda loop: asyncio.Event().wait()"""
# Comes to READY, and never beats.
MUTE = """import asyncio
from journeyman.loops.heartbeat_loop import HeartbeatLoop
HeartbeatLoop.run = lambda loop: asyncio.Event().wait()"""


class RealReleases:
    """Builds the first release, and derives others.

    Args:
        folder: for all of it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tree = folder / "tree"
        command = [sys.executable, str(REPOSITORY / "scripts" / "build_release.py"), "build", BASE_VERSION]
        done = subprocess.run(
            [*command, "--out", str(folder / "built")],
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        [built] = (folder / "built").glob("*.tar.gz")
        self._tree.mkdir()
        TarUnpacker(RealFileSystem()).unpack(built, self._tree, UnpackLimits())
        for path in self._tree.rglob("*.so"):
            if "cpython-" in path.name and THIS_PYTHON not in path.name:
                path.unlink()
        self._borrow_model_server()

    def derive(self, version: str, *, at_run: str = "") -> Path:
        """The artifact of a version, not signed yet.

        Args:
            version: what it says it is.
            at_run: lines that `journeyman run` begins with.
        """
        tree = self._folder / f"tree-{version}"
        shutil.copytree(self._tree, tree)
        package = tree / "lib" / "journeyman"
        self._rewrite(tree, package / "__init__.py", BASE_VERSION, version)
        if at_run:
            self._rewrite(tree, package / "cli" / "run.py", "\nimport click\n", f"\nimport click\n{at_run}\n")
        manifest = Manifest.from_json((tree / MANIFEST_NAME).read_bytes())
        (tree / MANIFEST_NAME).unlink()
        sequence = int("".join(f"{int(part):03}" for part in version.split(".")))
        derived = replace(
            manifest,
            version=VersionId(version),
            sequence=sequence,
            python_min=HERE,
            python_max=HERE,
            files={path.relative_to(tree).as_posix(): _facts(path) for path in _files(tree)},
        )
        (tree / MANIFEST_NAME).write_bytes(derived.to_json())
        artifact = self._folder / f"journeyman-{version}.tar.gz"
        pack(tree, artifact)
        # Another module of this session may have signed it with the key of its own plane.
        artifact.with_name(artifact.name + ".minisig").unlink(missing_ok=True)
        shutil.rmtree(tree)
        return artifact

    def _rewrite(self, tree: Path, path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        # Its bytecode is not checked against it, so it has to be made anew as well.
        assert compileall.compile_file(
            path,
            quiet=1,
            force=True,
            stripdir=str(tree),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )

    def _borrow_model_server(self) -> None:
        found = importlib.util.find_spec("xllamacpp")
        assert found is not None
        assert found.origin is not None
        package = self._tree / "lib" / "xllamacpp"
        package.mkdir()
        borrowed = Path(found.origin)
        (package / "__init__.py").write_text(
            f"__path__ = [{str(borrowed.parent)!r}]\nexec({borrowed.read_text()!r})\n"
        )


def _files(tree: Path) -> Iterator[Path]:
    return (path for path in sorted(tree.rglob("*")) if path.is_file())


def _facts(path: Path) -> ManifestFile:
    content = path.read_bytes()
    is_program = bool(path.stat().st_mode & 0o111)
    return ManifestFile(Sha256(hashlib.sha256(content).hexdigest()), len(content), is_program)


@pytest.fixture(scope="session")
def real_releases(tmp_path_factory: pytest.TempPathFactory) -> RealReleases:
    """Built once; about half a minute."""
    return RealReleases(tmp_path_factory.mktemp("real-releases"))
