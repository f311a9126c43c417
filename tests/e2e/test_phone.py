"""A phone from the first command to the last: real agent in real PRoot, real runit, real plane."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.adapters.minisign_keys import SecretKey
from tests.support.agents import ROOMY
from tests.support.installable_agent import installable_agent
from tests.support.plane import FOREMAN, RunningPlane, running_plane
from tests.support.proot import proot_words
from tests.support.termux import FakeTermux
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
COMMAND_SECONDS = 300
NODE = f"{FOREMAN}/fleetnodes/pocket"
# What this machine has to spare, and how many processes it has, is not what the test is about.
SETTINGS = """
server = "{server}"
token_file = "agent/token"
node_name = "pocket"
heartbeat_interval_seconds = 1
[gates]
sidecar_file = "{shared}/sensors.json"
[gates.phone]
hold_processes = 100000
open_processes = 100000
hold_available_memory_percent = 0
drain_available_memory_percent = 0
kill_available_memory_percent = 0
open_available_memory_percent = 0
"""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RunningPlane]:
    with running_plane(tmp_path / "plane") as plane:
        yield plane


@pytest.fixture
def termux(tmp_path: Path) -> Iterator[FakeTermux]:
    (tmp_path / "phone").mkdir()
    made = FakeTermux(tmp_path / "phone")
    made.runsvdir.start()
    try:
        yield made
    finally:
        made.install("--uninstall")
        made.runsvdir.stop()


def journeyman(*words: str | Path, under: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs our command; the guest has the files of this host, so without PRoot it is the same and faster."""
    command = [*under, sys.executable, "-m", "journeyman", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS)


def conditions(plane: RunningPlane) -> dict[str, str]:
    """The conditions of the node: type, and status with reason."""
    with plane.client() as client:
        reply = client.get(NODE)
    found = reply.json().get("status", {}).get("conditions", []) if reply.is_success else []
    return {one["type"]: f"{one['status']} {one['reason']}" for one in found}


@pytest.mark.parametrize(
    "in_guest",
    [
        pytest.param(False, id="quickly"),
        # The commands of the guest, too, and not only the agent.
        pytest.param(True, id="wholly", marks=pytest.mark.full),
    ],
)
def test_a_phone_joins_works_and_leaves(
    tmp_path: Path, plane: RunningPlane, termux: FakeTermux, *, in_guest: bool
) -> None:
    """Guest first, then Termux; it is kept awake only while a job runs; and it is taken away in turn."""
    root = tmp_path / "state root"
    key = SecretKey.generate()
    public = tmp_path / "release.pub"
    public.write_text(key.public.to_file())
    root.mkdir()
    config = SETTINGS.format(server=plane.url, shared=termux.shared) + ROOMY
    (root / "config.toml").write_text(config)
    artifact = installable_agent(tmp_path / "artifact", key)
    given: list[str | Path] = ["--state-root", root, "--server", plane.url]
    given += ["--token-file", plane.token_file]
    given += ["--node-name", "pocket", "--artifact", artifact, "--key", public]
    made = journeyman(
        "install", "--service", "termux", *given, "--json", under=proot_words() if in_guest else ()
    )
    assert made.returncode == 0, made.stderr
    report = json.loads(made.stdout)
    assert (report["node"], report["starts"]) == ("", "termux")
    assert f"sh proot/install.sh --root '{root}'" in report["next_step"]

    installed = termux.install("--root", root, "--every", "1")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert "has taken its heartbeat" in installed.stdout
    # Twice is once, on either side.
    proven = journeyman("install", "--service", "termux", *given, "--json")
    assert proven.returncode == 0, proven.stderr
    assert (json.loads(proven.stdout)["node"], json.loads(proven.stdout)["changes"]) == ("pocket", [])

    eventually(lambda: conditions(plane).get("PowerLow") == "False WithinMarks", within_seconds=60)
    assert conditions(plane)["SleepRisk"] == "False NoRisk"
    assert termux.wakefulness() == []
    end = tmp_path / "may end"
    job = f'while [ ! -e "{end}" ]; do sleep 0.1; done'
    lane = [
        sys.executable,
        "-m",
        "journeyman",
        "lane",
        "run",
        "--state-root",
        str(root),
        "--",
        "sh",
        "-c",
        job,
    ]
    with subprocess.Popen(lane, stdin=subprocess.DEVNULL) as running:
        eventually(lambda: termux.wakefulness() == ["lock"], within_seconds=60)
        end.touch()
        assert running.wait(60) == 0
    eventually(lambda: termux.wakefulness() == ["lock", "unlock"], within_seconds=30)

    refused = journeyman("uninstall", "--state-root", root)
    assert (refused.returncode, "sh proot/install.sh --uninstall" in refused.stderr) == (71, True)
    assert termux.install("--uninstall").returncode == 0
    removed = journeyman("uninstall", "--state-root", root)
    assert removed.returncode == 0, removed.stderr
    assert sorted(path.name for path in root.iterdir()) == ["config.toml"]
