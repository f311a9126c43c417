"""`journeyman update check|verify|rehearse|window`: what they say, and how they exit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from journeyman.cli import root as cli
from journeyman.errors import ControlPlaneError, JourneymanError, UsageError
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.contract import StateRoot
from journeyman_updater.contract.node import NodeFile
from journeyman_updater.model.release import Slot, VersionId, parse_sha256
from journeyman_updater.model.state import Spec, StateDocument, Status
from tests.simulator.releases import SmallRelease, bind, forge, member, sign
from tests.support.plane import FOREMAN, MERGE_PATCH, fleet_node, running_plane
from tests.support.waiting import eventually

KEY, OTHER = SecretKey(b"release1", bytes(range(32))), SecretKey(b"release2", bytes(range(1, 33)))
ACTIVE = parse_sha256("ab" * 32)


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    """A state root on which 1.0.0 runs, with one key pinned and sequence 5 seen."""
    found = StateRoot(tmp_path / "state root")
    found.path.mkdir()
    found.agent.mkdir()
    found.versions.mkdir()
    spec = Spec(source="agentrelease", keys=(KEY.public.to_line(),))
    status = Status(active=Slot(VersionId("1.0.0"), ACTIVE), sequence=5)
    found.state_file.write_bytes(StateDocument(spec, status).to_json())
    return found


def run(root: StateRoot, *words: str) -> Result:
    return CliRunner().invoke(cli, ["update", *words, "--state-root", str(root.path)])


def refusal(result: Result) -> str:
    assert isinstance(result.exception, JourneymanError), result.output
    assert result.exception.exit_code == 1
    return result.exception.message


def signed(folder: Path, release: SmallRelease | bytes, key: SecretKey = KEY, **bound: Any) -> Path:
    """An artifact with a signature beside it, with fields of the promise that differ from the truth."""
    if isinstance(release, bytes):
        artifact = folder / "forged.tar.gz"
        artifact.write_bytes(release)
    else:
        artifact = release.build(folder)
    promise = replace(bind(artifact, sequence=6), **bound)
    artifact.with_name(artifact.name + ".minisig").write_bytes(sign(artifact, key, promise))
    return artifact


def test_verify_prints_what_is_promised(root: StateRoot, tmp_path: Path) -> None:
    """A file that this host would take is shown with its promise; nothing of the host changes."""
    before = sorted(root.path.rglob("*"))
    artifact = signed(tmp_path, SmallRelease())
    shown = run(root, "verify", str(artifact))
    assert shown.exit_code == 0, shown.output
    assert "This host would take it." in shown.output
    value = json.loads(run(root, "verify", str(artifact), "--json").output)
    assert (value["ok"], value["version"], value["sequence"]) == (True, "0.2.0", 6)
    assert value["sha256"] == bind(artifact).sha256
    assert sorted(root.path.rglob("*")) == before


@pytest.mark.parametrize(
    ("release", "bound", "reason"),
    [
        (SmallRelease(), {"sequence": 4}, "RollbackRefused"),
        (SmallRelease(), {"expires": datetime(2026, 1, 2, tzinfo=UTC)}, "Expired"),
        (SmallRelease(), {"os": "plan9"}, "WrongOS"),
        (SmallRelease(), {"arch": "mips"}, "WrongArch"),
        (SmallRelease(), {"product": "another"}, "WrongProduct"),
        (SmallRelease(), {"version": VersionId("9.9.9")}, "BadSignature"),
        (SmallRelease(), {"size": 1}, "BadSignature"),
        (SmallRelease(python_min="3.99"), {}, "WrongPython"),
        (SmallRelease(arch="mips"), {}, "BadSignature"),
        (forge(member("../escape", b"x")), {}, "UnsafePath"),
        (forge(member("bin/journeyman", b"x", mode=0o755)), {}, "BadArchive"),
        (b"\x7fELF and more", {}, "WrongFormat"),
    ],
)
def test_verify_says_why_this_host_would_refuse(
    root: StateRoot, tmp_path: Path, release: SmallRelease | bytes, bound: dict[str, Any], reason: str
) -> None:
    """Each refusal has the reason code of the update that it stands for, and exit code 1."""
    artifact = signed(tmp_path, release, **bound)
    assert refusal(run(root, "verify", str(artifact))).startswith(f"{reason}: ")
    value = json.loads(run(root, "verify", str(artifact), "--json").output)
    assert (value["ok"], value["reason"]) == (False, reason)


def test_verify_trusts_the_named_key_alone(root: StateRoot, tmp_path: Path) -> None:
    """`--key` stands in for the pinned keys, needs no state root, and an unknown key is refused."""
    artifact = signed(tmp_path, SmallRelease(), OTHER)
    public = tmp_path / "other.pub"
    public.write_text(OTHER.public.to_file())
    assert refusal(run(root, "verify", str(artifact))).startswith("BadSignature")
    assert run(root, "verify", str(artifact), "--key", str(public)).exit_code == 0
    bare = StateRoot(tmp_path / "nowhere")
    assert run(bare, "verify", str(artifact), "--key", str(public)).exit_code == 0
    assert "no key is pinned" in refusal(run(bare, "verify", str(artifact)))
    artifact.with_name(artifact.name + ".minisig").unlink()
    assert "there is no" in refusal(run(root, "verify", str(artifact)))


def test_the_window_is_shown_set_and_cleared(root: StateRoot) -> None:
    """Without an argument it is shown with its next opening; a wrong one changes nothing and says why."""
    assert "no window" in run(root, "window").output
    spec = "Mon-Fri 22:00-06:00; Sat,Sun 00:00-24:00"
    assert "opens " in run(root, "window", spec).output
    value = json.loads(run(root, "window", "--json").output)
    assert value["window"] == spec
    assert datetime.fromisoformat(value["opens"]).tzinfo is not None
    wrong = run(root, "window", "nightly").exception
    assert isinstance(wrong, UsageError)
    assert "'nightly' is no range" in wrong.message
    assert isinstance(run(root, "window", spec, "--clear").exception, UsageError)
    assert json.loads(run(root, "status", "--json").output)["window"] == spec
    run(root, "window", "--clear")
    assert json.loads(run(root, "status", "--json").output)["window"] is None


def test_check_of_a_host_that_follows_nobody(root: StateRoot) -> None:
    """A host whose updates are off says so, needs no network for it, and exits with 0."""
    root.state_file.write_bytes(StateDocument(Spec(), Status()).to_json())
    shown = run(root, "check")
    assert shown.exit_code == 0
    assert "does not follow" in shown.output


@pytest.mark.slow
def test_check_asks_the_plane_now(root: StateRoot, tmp_path: Path) -> None:
    """What waits and what is not asked for exits with 0, a refusal with 1, a plane that is away with 69."""
    with running_plane(tmp_path) as plane, plane.client() as client:
        client.post(f"{FOREMAN}/fleetnodes", json=fleet_node("desk")).raise_for_status()
        node = NodeFile("desk", plane.url, token_file=str(plane.token_file))
        root.node_file.write_bytes(node.to_json())
        assert "asks for no update" in run(root, "check").output

        def ask_for(sha256: str) -> None:
            wish = {"targetVersion": "v1.0.1", "url": "http://127.0.0.1:9/a", "sha256": sha256}
            body = {"status": {"updateRequest": wish}}
            url = f"{FOREMAN}/fleetnodes/desk/status"
            client.patch(url, json=body, headers=MERGE_PATCH).raise_for_status()

        ask_for(ACTIVE)
        assert "these very bytes run already" in run(root, "check").output
        run(root, "pin", "1.0.0")
        ask_for("cd" * 32)
        refused = run(root, "check", "--json")
        assert refusal(refused).startswith("Pinned: ")
        value = json.loads(refused.output)
        assert (value["prospect"], value["reason"]) == ("refused", "Pinned")
        assert value["release"] == {"version": "v1.0.1", "sha256": "cd" * 32}
        run(root, "unpin")
        root.updater_settings.write_text('{"allow_unsigned": true}')
        assert "would update to v1.0.1" in run(root, "check").output
    away = run(root, "check").exception
    assert isinstance(away, ControlPlaneError)
    assert away.exit_code == 69
    assert away.message.startswith("Unreachable: ")


def rehearsal(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "journeyman", "update", "rehearse", "--state-root", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def processes_below(folder: Path) -> list[str]:
    """The command lines that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/rehearsal-" in words:
            found.append(words)
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: looks into /proc")
def test_a_rehearsal_shows_the_three_outcomes_and_leaves_nothing(tmp_path: Path) -> None:
    """Good is committed, crashing and hanging are undone after three starts each, and all is gone then."""
    folder = tmp_path / "state root"
    folder.mkdir()
    result = CliRunner().invoke(cli, ["update", "rehearse", "--json", "--state-root", str(folder)])
    assert result.exit_code == 0, result.output
    scenes = json.loads(result.output)
    assert [(item["release"], item["ending"], item["reason"], item["starts"]) for item in scenes] == [
        ("good", "committed", None, 1),
        ("crash", "rolled_back", "CrashLoop", 3),
        ("hang", "rolled_back", "NotReady", 3),
    ]
    assert all(item["asExpected"] and 0 < item["seconds"] < 75 for item in scenes)
    assert list(folder.iterdir()) == []
    assert processes_below(folder) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_rehearsal_that_is_stopped_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    """Stopped in the middle of a trial, it ends what it started and removes its folder."""
    with rehearsal(tmp_path) as process:
        assert process.stdout is not None
        # The good release is done, so that the crashing one is on trial.
        assert process.stdout.readline().startswith("good")
        os.kill(process.pid, number)
        assert process.wait(timeout=30) in {130, 143}
    eventually(lambda: not processes_below(tmp_path), within_seconds=10)
    assert list(tmp_path.iterdir()) == []
