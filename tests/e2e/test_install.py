"""`journeyman install` and `uninstall` without a boot: no manager, real runit, the fake of launchd."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from journeyman.cli import root as cli
from journeyman.control import call
from journeyman.errors import HostError
from journeyman.installation import check, install
from journeyman.joining import leave
from journeyman.settings import load_settings
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot
from journeyman_updater.installation import Target, installer_for, read_made, remove
from journeyman_updater.model.release import Sha256, Slot, VersionId
from journeyman_updater.model.unit import Unit
from journeyman_updater.run import compose, open_updater
from journeyman_updater.settings import Settings
from tests.support.agents import ROOMY
from tests.support.installable_agent import installable_agent
from tests.support.joined import join_token
from tests.support.killed_writer import kill_a_writer_of
from tests.support.places import Place, place_of
from tests.support.plane import RunningPlane, running_plane
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
KEY = SecretKey.generate()
COMMAND_SECONDS = 150


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    with running_plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installable_agent(tmp_path_factory.mktemp("artifact") / "made", KEY)


@pytest.fixture(params=["none", "runit", "launchd"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_of(request.param, tmp_path, KEY) as place:
        yield place


def test_an_agent_is_installed_once_and_taken_away(place: Place, plane: RunningPlane, artifact: Path) -> None:
    """It beats when install returns, a second run changes nothing, and uninstall leaves nothing."""
    root = place.target.root
    request = place.request(plane, artifact)
    report = install(request, place.said.append)
    assert report.changes
    assert (report.node, report.starts) == (
        place.target.service,
        {"none": "never", "runit": "runsvdir", "launchd": "boot"}[place.target.service],
    )
    status = call(root, "status")
    assert status["lastHeartbeatAt"]
    assert (root.agent / "token").stat().st_mode & 0o777 == 0o600
    assert plane.token not in root.config_file.read_text()

    assert install(request, place.said.append).changes == []
    assert call(root, "status")["pid"] == status["pid"]
    check_unit(place)

    made = read_made(root)
    assert made is not None
    left = [kill_a_writer_of(path) for path in installer_for(place.target, SystemClock()).files()]
    removed = remove(root, made, purge=False)
    assert removed.left == []
    assert not root.path.exists()
    assert not any(path.exists() for path in left)
    assert [path for path in removed.files if Path(path).exists()] == []
    assert place.pids() == []


def check_unit(place: Place) -> None:
    """The release would install the agent's unit as it lies there, where an updater would replace it."""
    target = place.target
    done = journeyman("update", "unit", "--json", "--state-root", target.root.path)
    assert done.returncode == 0, done.stderr
    unit = Unit.from_json(done.stdout.encode())
    settings = Settings.load(target.root.updater_settings)
    installed = compose(target.root, settings, lambda _here, _total: None).unit
    assert set(unit.files) == set(installed.paths())
    assert all(
        installed.is_same(path.read_bytes(), unit.files[name]) for name, path in installed.paths().items()
    )
    assert bool(unit.files) is (target.service != "none")


def test_what_is_worth_keeping_is_kept(plane: RunningPlane, artifact: Path, tmp_path: Path) -> None:
    """Models, and what lay in the root before, outlive an uninstall and are listed."""
    with place_of("none", tmp_path, KEY) as place:
        root = place.target.root
        root.path.mkdir()
        root.config_file.write_text(
            f'server = "{plane.url}"\ntoken_file = "agent/token"\nnode_name = "none"\n{ROOMY}'
        )
        install(place.request(plane, artifact), place.said.append)
        (root.models / "a.gguf").write_text("large")
        done = journeyman("uninstall", "--state-root", root.path)
        assert done.returncode == 0, done.stderr
        assert sorted(path.name for path in root.path.iterdir()) == ["config.toml", "models"]
        assert str(root.models) in done.stdout
        assert str(root.config_file) in done.stdout

        again = journeyman("uninstall", "--state-root", root.path)
        assert (again.returncode, again.stderr) == (0, "")
        assert again.stdout.startswith("Nothing that `journeyman install` made is in")


def test_an_uninstall_ends_all_that_goes_on(plane: RunningPlane, artifact: Path, tmp_path: Path) -> None:
    """An update at work is ended, a worker too, by name, and --purge takes what is else worth keeping."""
    other = installable_agent(tmp_path / "other", KEY, version="9.9.9", sequence=2)
    with place_of("none", tmp_path, KEY) as place:
        root = place.target.root
        install(place.request(plane, artifact), place.said.append)
        (root.models / "a.gguf").write_text("large")
        program, here = [sys.executable, "-m", "journeyman"], ["--state-root", str(root.path)]
        job = [*program, "lane", "run", "--name", "long", *here, "--", "sleep", "120"]
        # The agent of the new release is watched for a minute before it is believed.
        update = [*program, "update", "apply", str(other), *here]
        with subprocess.Popen(job) as client, subprocess.Popen(update) as updating:
            eventually(lambda: any(root.workers.glob("*/record.json")), within_seconds=60)
            [worker] = [path.name for path in root.workers.iterdir()]
            eventually(lambda: is_watched(root), within_seconds=60)
            done = journeyman("uninstall", "--purge", "--json", "--state-root", root.path)
            # Who waits for its job does not wait for an agent that was taken away.
            assert client.wait(30) != 0
            assert updating.wait(60) == -signal.SIGTERM
        assert done.returncode == 0, done.stderr
        removed = json.loads(done.stdout)
        assert removed == {"trial": "9.9.9", "workers": [worker], "files": [], "left": []}
        assert not root.path.exists()
        eventually(lambda: place.pids() == [], within_seconds=30)


def is_watched(root: StateRoot) -> bool:
    """Whether the agent of a release on trial has answered."""
    trial = open_updater(root).document().status.trial
    return trial is not None and root.trial_file.exists() and trial.nonce in root.trial_file.read_text()


def put_on_trial(root: StateRoot) -> None:
    """As the updater leaves it between the decision and the proof."""
    document = open_updater(root).document()
    trial = Slot(VersionId("9.9.9"), Sha256("9" * 64), "nonce", 9)
    on_trial = replace(document, status=replace(document.status, trial=trial))
    root.state_file.write_bytes(on_trial.to_json())


def test_a_root_that_was_there_before_keeps_no_open_trial(
    plane: RunningPlane, artifact: Path, tmp_path: Path
) -> None:
    """A release that `update bootstrap` had laid down stays, and nothing of it is on trial any more."""
    with place_of("none", tmp_path, KEY) as place:
        root, key = place.target.root, tmp_path / "release.pub"
        key.write_text(KEY.public.to_file())
        done = journeyman("update", "bootstrap", artifact, "--key", key, "--state-root", root.path)
        assert done.returncode == 0, done.stderr
        root.config_file.unlink()
        install(place.request(plane, None), place.said.append)
        put_on_trial(root)
        made = read_made(root)
        assert made is not None
        removed = remove(root, made, purge=False)
        assert removed.trial == "9.9.9"
        assert str(root.state_file) in removed.left
        assert sorted(map(str, root.path.iterdir())) == removed.left
        assert open_updater(root).document().status.trial is None
        assert not root.installation_file.exists()


@pytest.mark.parametrize("place", ["launchd"], indirect=True)
def test_no_agent_is_installed_beside_another_one(place: Place, plane: RunningPlane, artifact: Path) -> None:
    """A job of LLMKube that is loaded is a reason to refuse, and nothing is made."""
    folder = Path(place.target.folder)
    (folder / "com.llmkube.metal-agent.plist").write_bytes(
        b'<plist version="1.0"><dict><key>Label</key><string>com.llmkube.metal-agent</string>'
        b"<key>ProgramArguments</key><array><string>/bin/sleep</string><string>600</string></array>"
        b"</dict></plist>"
    )
    subprocess.run(
        [place.target.launchctl, "bootstrap", "system", str(folder / "com.llmkube.metal-agent.plist")],
        check=True,
    )
    with pytest.raises(HostError, match=r"com\.llmkube\.metal-agent"):
        check(place.request(plane, artifact))
    assert not place.target.root.path.exists()


def journeyman(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "journeyman", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS)


@dataclass(frozen=True)
class Bad:
    """One wrong thing: what it does to the options, the exit code, and a word of the one line."""

    spoil: Callable[[dict[str, str], Path], None]
    code: int
    says: str


def _wrong_token(options: dict[str, str], folder: Path) -> None:
    path = folder / "wrong token"
    path.write_text("nobody's")
    options["--token-file"] = str(path)


def _broken_artifact(options: dict[str, str], folder: Path) -> None:
    path = folder / "broken.tar.gz"
    good = Path(options["--artifact"])
    path.write_bytes(good.read_bytes()[:-100])
    path.with_name(path.name + ".minisig").write_bytes(good.with_name(good.name + ".minisig").read_bytes())
    options["--artifact"] = str(path)


def _root_in_sysfs(options: dict[str, str], _: Path) -> None:
    # Not even root may make a folder there.
    options["--state-root"] = "/sys/kernel/journeyman"


def _port_closed(options: dict[str, str], _: Path) -> None:
    options["--server"] = "http://127.0.0.1:9"


def _unknown_key(options: dict[str, str], folder: Path) -> None:
    path = folder / "other.pub"
    path.write_text(SecretKey.generate().public.to_file())
    options["--key"] = str(path)


def _crashing(options: dict[str, str], folder: Path) -> None:
    options["--artifact"] = str(installable_agent(folder / "crashing", KEY, crashes=True))
    options["--deadline"] = "2"


BAD = {
    "wrong token": Bad(_wrong_token, 77, "401"),
    "port closed": Bad(_port_closed, 69, "127.0.0.1:9"),
    "artifact broken": Bad(_broken_artifact, 65, "was asked for"),
    "unknown key": Bad(_unknown_key, 65, "BadSignature"),
    "root not writable": Bad(_root_in_sysfs, 71, "cannot be used"),
    "agent crashes": Bad(_crashing, 71, "it is broken on purpose"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_leaves_nothing(
    case: str, plane: RunningPlane, artifact: Path, tmp_path: Path
) -> None:
    """Each wrong thing has its exit code and a line that names it; files and processes are as before."""
    bad, key_file = BAD[case], tmp_path / "release.pub"
    key_file.write_text(KEY.public.to_file())
    options = {
        "--state-root": str(tmp_path / "deep" / "root"),
        "--service": "none",
        "--server": plane.url,
        "--token-file": str(plane.token_file),
        "--artifact": str(artifact),
        "--key": str(key_file),
        "--node-name": "bad",
    }
    bad.spoil(options, tmp_path)
    before = sorted(tmp_path.iterdir())
    done = journeyman("install", "--user", *(word for pair in options.items() for word in pair))
    # Progress is told on standard error, too, by lines that are no errors.
    [line] = [line for line in done.stderr.splitlines() if bad.says in line]
    assert line.startswith("journeyman: ")
    assert (done.returncode, done.stdout) == (bad.code, "")
    assert sorted(tmp_path.iterdir()) == before
    assert Place(Target(StateRoot(tmp_path / "deep" / "root"), "none"), KEY).pids() == []


@pytest.mark.full
def test_a_name_that_another_agent_beats_under_is_refused(
    plane: RunningPlane, artifact: Path, tmp_path: Path
) -> None:
    """A fresh heartbeat of a stranger under our name stops the installation before anything is made."""
    with place_of("none", tmp_path / "first", KEY) as first:
        first.target.root.path.parent.mkdir()
        install(first.request(plane, artifact, node_name="one"), first.said.append)
        root = tmp_path / "second"
        words = ("--user", "--service", "none", "--state-root", root, "--node-name", "one")
        more = ("--server", plane.url, "--token-file", plane.token_file, "--artifact", artifact)
        done = journeyman("install", *words, *more)
    assert done.returncode == 76
    assert "another agent beats as FleetNode one" in done.stderr
    assert not root.exists()


@pytest.mark.full
def test_a_dry_run_names_all_and_touches_nothing(plane: RunningPlane, artifact: Path, tmp_path: Path) -> None:
    """What --dry-run prints is what a run makes, and it makes nothing itself."""
    with place_of("none", tmp_path, KEY) as place:
        root = place.target.root
        words = ("--user", "--service", "none", "--state-root", root.path, "--node-name", "none")
        more = ("--server", plane.url, "--token-file", plane.token_file, "--artifact", artifact)
        done = journeyman("install", "--dry-run", *words, *more)
        assert done.returncode == 0, done.stderr
        assert not root.path.exists()
        named = {line.strip().rstrip("/") for line in done.stdout.splitlines()}
        install(place.request(plane, artifact), place.said.append)
        # What the running agent and updater make for themselves is not the installation's.
        own = {"update.lock"}
        assert {str(path) for path in root.path.iterdir() if path.name not in own} <= named


def test_a_host_is_joined_and_installed_in_one_command(
    tmp_path: Path, plane: RunningPlane, artifact: Path
) -> None:
    """`install --join` spends a join token, and the agent that it installs beats as its node alone."""
    (tmp_path / "join.token").write_text(join_token(plane))
    (tmp_path / "release.pub").write_text(KEY.public.to_file())
    with place_of("none", tmp_path, KEY) as place:
        root = place.target.root
        words = ["install", "--user", "--service", "none", "--state-root", str(root.path), "--deadline", "60"]
        words += ["--join", plane.url, "--token-file", str(tmp_path / "join.token"), "--node-name", "invited"]
        words += ["--artifact", str(artifact), "--key", str(tmp_path / "release.pub"), "--json"]
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, (done.output, done.exception)
        assert call(root, "status")["nodeName"] == "invited"
        assert root.token_file.read_text().startswith("node.invited.")
        left = leave(load_settings({"state_root": root.path}, {}).settings, place.said.append, force=False)
        assert left.node == "deleted"
