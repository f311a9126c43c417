"""Releases are reproducible, run where they are unpacked, and pass their own updater's checks."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from journeyman.model.agent_release import AgentRelease
from journeyman_updater.adapters.exec_check import SubprocessExecCheck
from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.adapters.host_facts import this_host
from journeyman_updater.adapters.minisign import MinisignVerifier
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.adapters.unpack import TarUnpacker
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.release import VersionId
from journeyman_updater.ports import UnpackLimits
from journeyman_updater.steps.tree import read_manifest, verify_tree
from tests.support.debian import ensure_debian_package

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).resolve().parent.parent.parent
PARTS = ("agent", "updater", "plane", "scripts", "proot", "pyproject.toml", "README.md", "LICENSE")
VERSION = "9.8.7-rc.1"
HOST = this_host()
NAME = f"journeyman-{VERSION}-{HOST.os}-{HOST.arch}.tar.gz"


def release(*arguments: str | Path, sources: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    """Runs scripts/release of a copy of the sources, without its look at the environment."""
    script = sources / "scripts" / "build_release.py"
    return subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=False, timeout=600
    )


@dataclass(frozen=True)
class Built:
    """Two builds of one version from two copies of the sources, and a key."""

    first: Path
    second: Path
    key: Path

    @property
    def artifact(self) -> Path:
        return self.first / NAME

    @property
    def public_key(self) -> str:
        return self.key.with_name("key.pub").read_text()

    def binding(self) -> ReleaseBinding:
        """What the signature promises, verified."""
        signature = Path(f"{self.artifact}.minisig").read_bytes()
        return MinisignVerifier().verify(self.artifact, signature, (self.public_key,), datetime.now(UTC))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("releases")
    made = release("key", folder / "key")
    assert made.returncode == 0, made.stderr
    # Both builds are of one state of the sources, though somebody may be editing them.
    snapshot = folder / "snapshot"
    for part in PARTS:
        _copy(REPOSITORY / part, snapshot / part)
    for name in ("first", "second"):
        # Another path and other times, as on another machine.
        sources = shutil.copytree(snapshot, folder / f"sources of the {name}", copy_function=shutil.copy)
        done = release(
            *("build", VERSION, "--out", folder / name, "--wheels", folder / "wheels"),
            *("--key", folder / "key", "--url-base", "https://releases.test/j/"),
            sources=sources,
        )
        assert done.returncode == 0, done.stderr
    return Built(folder / "first", folder / "second", folder / "key")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


@pytest.fixture(scope="module")
def tree(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a path with spaces") / "tree"
    folder.mkdir()
    TarUnpacker(RealFileSystem()).unpack(built.artifact, folder, UnpackLimits())
    return folder


def run(
    program: Path, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=60, cwd=cwd, env=env
    )


def test_two_builds_are_the_same_bytes(built: Built) -> None:
    """Neither the folder nor the time of a build is in it."""
    assert (built.first / NAME).read_bytes() == (built.second / NAME).read_bytes()


def test_the_release_passes_the_updaters_checks(built: Built, tree: Path) -> None:
    """Signature, manifest and exec check agree about version, platform, size and digest."""
    binding = built.binding()
    manifest, _ = read_manifest(RealFileSystem(), tree)
    verify_tree(RealFileSystem(), tree, manifest)
    assert (binding.version.spelled, manifest.version.spelled) == (VERSION, VERSION)
    assert (binding.os, binding.arch) == (manifest.os, manifest.arch) == (HOST.os, HOST.arch)
    assert binding.sequence == manifest.sequence == 9_008_007
    SubprocessExecCheck(SystemClock()).run(tree, product="journeyman", version=VersionId(VERSION))


def test_stock_minisign_agrees(built: Built) -> None:
    """Debian's minisign verifies the release with the key that the script made."""
    program = ensure_debian_package("minisign")
    public = built.key.with_name("key.pub")
    done = subprocess.run(
        [program, "-V", "-p", public, "-m", built.artifact], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_agent_release_is_valid_and_not_approved(built: Built) -> None:
    """The object that rolls it out names artifact and digest, and waits for a person."""
    text = (built.first / "agentrelease.yaml").read_text()
    found = AgentRelease.model_validate(yaml.safe_load(text))
    artifact = found.spec.artifact_for(HOST.os, HOST.arch)
    assert artifact is not None
    assert artifact.url == f"https://releases.test/j/{NAME}"
    assert artifact.sha256 == built.binding().sha256
    assert found.spec.version == VERSION
    assert not found.spec.approved
    assert found.spec.selector.match_labels == {"journeyman.dev/agent": "true"}


def test_the_tree_runs_from_anywhere_and_stays_as_it_was(tree: Path, tmp_path: Path) -> None:
    """Through a link, from a folder with a treacherous module, it tells its version and writes nothing."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')")
    (tmp_path / "journeyman").symlink_to(tree / "bin" / "journeyman")
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    shown = run(tmp_path / "journeyman", "version", "--json", cwd=tmp_path)
    assert shown.stdout == f'{{"product": "journeyman", "version": "{VERSION}"}}\n', shown.stderr
    assert run(tree / "bin" / "journeyman", "--help").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == before


def test_the_termux_side_of_a_phone_comes_along(tree: Path) -> None:
    """Whoever unpacks a release in Termux has what keeps the guest, ready to run."""
    done = subprocess.run(["sh", tree / "proot" / "install.sh", "--help"], capture_output=True, check=False)
    assert done.returncode == 0
    assert os.access(tree / "proot/termux/journeyman/run", os.X_OK)


def test_a_recorded_python_is_used_if_it_is_supported(tree: Path, tmp_path: Path) -> None:
    """JOURNEYMAN_PYTHON comes first, unless it is too old or broken."""
    recorded, old = tmp_path / "recorded", tmp_path / "old"
    recorded.write_text(f'#!/bin/sh\necho used >"{tmp_path}/used"\nexec "{sys.executable}" "$@"\n')
    old.write_text("#!/bin/sh\necho 3.9\n")
    for script in (recorded, old):
        script.chmod(0o755)
    for python in (recorded, old, tmp_path / "missing"):
        environment = {**os.environ, "JOURNEYMAN_PYTHON": str(python)}
        assert VERSION in run(tree / "bin" / "journeyman", "version", env=environment).stdout
    assert (tmp_path / "used").exists()


def test_another_python_keeps_its_bytecode_elsewhere(tree: Path, tmp_path: Path) -> None:
    """The Python that lib/ is not compiled for writes to the user's cache and never into the tree."""
    other = tmp_path / "python3.12"
    # It says that it is another one; what counts is how it is called.
    other.write_text('#!/bin/sh\ncase "$*" in *version_info*) echo 3.12 ;; *) exec env >"$OUT" ;; esac\n')
    other.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "JOURNEYMAN_PYTHON": str(other), "OUT": str(tmp_path / "env")}
    for home, expected in (
        ({"HOME": "/home/x"}, "PYTHONPYCACHEPREFIX=/home/x/.cache/journeyman/bytecode"),
        ({}, "PYTHONDONTWRITEBYTECODE=1"),
    ):
        run(tree / "bin" / "journeyman", "version", env={**environment, **home})
        assert expected in (tmp_path / "env").read_text().splitlines()


def test_a_host_without_python_is_told_so(tree: Path) -> None:
    """No supported Python is one clear line and an exit code of its own."""
    always = "/usr/local/bin:/opt/homebrew/bin:/Library/Frameworks/Python.framework/Versions/Current/bin"
    if any(shutil.which(f"python3.{minor}", path=always) for minor in range(11, 15)):
        pytest.skip("cannot run here: a Python lies where the launcher always looks")
    failed = run(tree / "bin" / "journeyman", env={"PATH": "/nonexistent"})
    assert failed.returncode == 71
    assert "JOURNEYMAN_PYTHON" in failed.stderr


def test_a_release_is_signed_again(built: Built, tmp_path: Path) -> None:
    """A deliberate downgrade gets a higher sequence over the same bytes."""
    artifact = tmp_path / NAME
    shutil.copy(built.artifact, artifact)
    done = release("sign", artifact, "--key", built.key, "--sequence", "9999999", "--expires", "10")
    assert done.returncode == 0, done.stderr
    signature = Path(f"{artifact}.minisig").read_bytes()
    binding = MinisignVerifier().verify(artifact, signature, (built.public_key,), datetime.now(UTC))
    assert binding.sequence == 9_999_999
    assert (binding.expires - datetime.now(UTC)).days in {9, 10}
    assert binding.sha256 == built.binding().sha256


def test_a_key_is_private_and_never_overwritten(tmp_path: Path) -> None:
    """The secret key is for its owner's eyes, and a second run refuses."""
    assert release("key", tmp_path / "key").returncode == 0
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    kept = (tmp_path / "key").read_text()
    refused = release("key", tmp_path / "key")
    assert (refused.returncode, (tmp_path / "key").read_text()) == (2, kept)


@pytest.mark.parametrize(
    "arguments",
    [
        ("build", "../9.8.7"),
        ("build", "latest"),
        ("build", "9.8.7", "--extras", "nonsense"),
        ("build", "9.8.7", "--key", "/no/such/key"),
        ("sign", "/no/such/file"),
        ("sign", str(REPOSITORY / "LICENSE"), "--key", "/no/such/key"),
        (),
    ],
)
def test_bad_input_is_one_line_and_builds_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """A wrong version, extra, key or file is exit code 2 without a traceback."""
    out = ("--out", str(tmp_path / "out")) if arguments[:1] == ("build",) else ()
    failed = release(*arguments, *out)
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr
    assert not (tmp_path / "out").exists()
