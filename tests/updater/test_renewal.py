"""Updater, guard and parent replace themselves: tried beside the old ones, switched to when they work."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman_updater import guard, parent
from journeyman_updater.adapters.flock import FlockLocks
from journeyman_updater.bootstrap import bootstrap
from journeyman_updater.cli import main
from journeyman_updater.contract import StateRoot
from journeyman_updater.core.launcher import copy_named_in
from journeyman_updater.model.journal import RENEWALS, Record, Step
from journeyman_updater.model.release import Sha256, Slot, VersionId
from journeyman_updater.renewal import compose_check
from journeyman_updater.run import compose, open_updater
from journeyman_updater.settings import Settings
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.renew import Myself, renew
from journeyman_updater.steps.stage import stage
from tests.simulator.releases import SmallRelease

SETTINGS = Settings(exec_check_seconds=20, allow_unsigned=True)
PYTHON = "/usr/bin/python3"
GUARD = Path(str(guard.__file__)).read_bytes()
PARENT = Path(str(parent.__file__)).read_bytes()
UPDATER = b"""import json
print(json.dumps({"ending": "nothing", "reason": None, "message": ""}))
"""
# All of the real one; what it needs beside itself comes from where the tests find it.
PACKAGE = Path(str(guard.__file__)).parent
REAL = {
    str(path.relative_to(PACKAGE).with_suffix("")): path.read_bytes() for path in PACKAGE.rglob("*.py")
} | {
    "__main__": f"""import sys
sys.path.append({sysconfig.get_path("purelib")!r})
from journeyman_updater.cli import main
sys.exit(main())
""".encode()
}
BUSY = b"""import json
print(json.dumps({"ending": "later", "reason": "SelfUpdateUnavailable", "message": "another run is at work"}))
"""


Contents = Mapping[str, bytes]


class Installed:
    """A root on which 0.1.0 was installed, and which then became 0.2.0.

    Args:
        folder: for everything.
        files: the content of modules of 0.2.0 that are not good ones.
        first: the same of 0.1.0.
    """

    def __init__(self, folder: Path, files: Contents | None = None, first: Contents | None = None) -> None:
        self.folder = folder
        self.root = StateRoot(folder / "state root")
        self.root.path.mkdir()
        self.root.updater_settings.write_text(json.dumps({"allow_unsigned": True}))
        self.old = bootstrap(self.root, self._build("0.1.0", first or {}), keys=(), source="off").slot
        self.tools: Tools = compose(self.root, SETTINGS, lambda _here, _total: None)
        artifact = self._build("0.2.0", files or {})
        sha256 = Sha256(hashlib.sha256(artifact.read_bytes()).hexdigest())
        self.new = Slot(VersionId("0.2.0"), sha256, "nonce", 2)
        stage(self.tools, self.new, artifact)
        self.tools.records.save_status(active=self.new, previous=self.old)

    def renew(self, runs_from: Slot, settings: Settings = SETTINGS) -> None:
        """As a run of the updater does at its end, from that copy."""
        me = Myself(runs_from.sha256[:12], PYTHON)
        renew(self.tools, me, compose_check(self.tools, settings), FlockLocks())

    def named(self) -> set[str | None]:
        """The copies that the launchers start."""
        root = self.root
        paths = (root.guard_launcher, root.updater_launcher, root.parent_launcher)
        return {copy_named_in(path.read_text()) for path in paths}

    def copies(self) -> set[str]:
        return {path.name for path in self.root.updater.iterdir()}

    def told(self) -> list[Record]:
        """What the journal says about it."""
        return [record for record in self.tools.records.history() if record.step in RENEWALS]

    def _build(self, version: str, files: Contents) -> Path:
        contents = {"__init__": b"", "__main__": UPDATER, "guard": GUARD, "parent": PARENT, **files}
        more = tuple((f"lib/journeyman_updater/{name}.py", data) for name, data in contents.items())
        return SmallRelease(version=version, more=more).build(self.folder)


@pytest.mark.slow
def test_updater_and_guard_follow_the_active_release(tmp_path: Path) -> None:
    """All launchers start the new copy; the old one goes when the updater has run from the new one."""
    host = Installed(tmp_path)
    old, new = host.old.sha256[:12], host.new.sha256[:12]
    host.renew(host.old)
    assert (host.named(), host.copies()) == ({new}, {old, new})
    root = host.root
    command: list[str | Path] = [root.guard_launcher, "--root", root.path, "--", "version", "--json"]
    said = subprocess.run(command, capture_output=True, check=True, timeout=30).stdout
    assert json.loads(said) == {"product": "journeyman", "version": "0.2.0"}

    host.renew(host.new)
    assert (host.named(), host.copies()) == ({new}, {new})
    assert not list(host.root.path.glob("*.next"))
    assert [record.step for record in host.told()] == [Step.RENEW, Step.RENEWED]


@pytest.mark.slow
def test_the_real_updater_replaces_itself_in_two_runs(tmp_path: Path) -> None:
    """As a timer starts it: the first run ends with the new launchers, the second removes the old copy."""
    host = Installed(tmp_path, REAL, REAL)
    old, new = host.old.sha256[:12], host.new.sha256[:12]
    assert host.named() == {old}
    for left in ({old, new}, {new}):
        command: list[str | Path] = [host.root.updater_launcher, "--root", host.root.path]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
        assert json.loads(done.stdout)["ending"] == "nothing"
        assert (host.named(), host.copies()) == ({new}, left), host.told()


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        {"guard": b"this is no Python"},
        {"guard": b"raise SystemExit(1)"},
        {"guard": b"print('started nothing')"},
        {"parent": b"import nothing_like_that"},
        {"__main__": b"raise RuntimeError"},
        {"__main__": b"print('done')"},
        {"__main__": b"import time; time.sleep(600)"},
    ],
    ids=["no guard", "guard fails", "guard starts nothing", "parent", "updater", "no answer", "hangs"],
)
def test_a_broken_copy_is_never_switched_to(tmp_path: Path, broken: Contents) -> None:
    """The launchers stay as they are to the byte; the copy is removed, and not tried again."""
    host = Installed(tmp_path, broken)
    launchers = {path: path.read_bytes() for path in host.root.path.iterdir() if path.is_file()}
    quick = Settings(exec_check_seconds=0.5) if b"sleep" in broken.get("__main__", b"") else SETTINGS
    host.renew(host.old, quick)
    for path in (host.root.guard_launcher, host.root.updater_launcher, host.root.parent_launcher):
        assert path.read_bytes() == launchers[path]
    assert [(record.step, record.detail.get("rejects")) for record in host.told()] == [
        (Step.RENEW, None),
        (Step.NOT_RENEWED, True),
    ]
    host.renew(host.old)
    assert host.copies() == {host.old.sha256[:12]}
    assert len(host.told()) == 2


@pytest.mark.slow
def test_a_copy_that_could_not_be_tried_is_tried_again(tmp_path: Path) -> None:
    """That another updater was at work is no evidence against it, and is told once."""
    host = Installed(tmp_path, {"__main__": BUSY})
    for _ in range(2):
        host.renew(host.old)
    assert host.named() == {host.old.sha256[:12]}
    assert [record.detail.get("rejects") for record in host.told()] == [None, False]
    assert host.copies() == {host.old.sha256[:12], host.new.sha256[:12]}


@pytest.mark.slow
def test_nothing_is_renewed_while_a_trial_is_open(tmp_path: Path) -> None:
    """The updater that began a trial ends it."""
    host = Installed(tmp_path)
    host.tools.records.save_status(active=host.old, trial=replace(host.new, nonce="trial"))
    host.renew(host.old)
    host.tools.records.save_status(active=host.new, trial=replace(host.old, nonce="trial"))
    host.renew(host.old)
    assert (host.copies(), host.told()) == ({host.old.sha256[:12]}, [])


@pytest.mark.slow
def test_a_first_run_obeys_no_request_and_says_how_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It recovers, tidies and says so; while another updater is at work it says that it could not."""
    host = Installed(tmp_path)
    words = ["--root", str(host.root.path), "--first-run"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["ending"] == "nothing"
    with FlockLocks().hold(host.root.update_lock):
        assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["ending"], said["reason"]) == ("later", "SelfUpdateUnavailable")
    assert open_updater(host.root).document().status.active == host.new
