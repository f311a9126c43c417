"""What launchd shows to be wrong with an installation is found, and each advice heals it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.adapters.service.diagnosis import Trouble, troubles_of
from journeyman_updater.adapters.service.installers import Target, installer_for
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot
from tests.support.fake_launchctl import FakeLaunchctl
from tests.support.fake_launchd import FakeLaunchd
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
AGENT = "dev.journeyman.agent"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    """Both jobs registered in the system's domain, each with a program that stays."""
    launchd = FakeLaunchd(tmp_path, domains={"system", f"user/{os.getuid()}"})
    tool = FakeLaunchctl(launchd)
    root = StateRoot(tmp_path / "root")
    target = Target(root, "launchd", "", str(launchd.launch_daemons), str(tool.folder / "launchctl"))
    target.root.logs.mkdir(parents=True)
    root.run.mkdir()
    for program in (root.guard_launcher, root.updater_launcher):
        program.write_text(f"#!{sys.executable} -IS\nimport signal\nsignal.pause()\n")
        program.chmod(0o755)
    installer = installer_for(target, SystemClock())
    installer.install()
    installer.start()
    try:
        yield target
    finally:
        installer.uninstall()
        tool.close()


def troubles(target: Target) -> list[Trouble]:
    return troubles_of(target, SystemClock())


def launchctl(target: Target, *words: str) -> None:
    subprocess.run([target.launchctl, *words], check=True, capture_output=True)


def follow(target: Target, advice: str) -> None:
    """Does what an advice says: the command between its first backticks, and an installation."""
    words = shlex.split(advice.split("`")[1])
    if words[0] == "launchctl":
        launchctl(target, *words[1:])
    if "journeyman install" in advice:
        installer = installer_for(target, SystemClock())
        installer.install()
        installer.start()


def test_a_sound_registration_has_no_troubles(target: Target) -> None:
    """What was just installed is well."""
    assert troubles(target) == []


def test_a_disabled_label_is_found_and_healed(target: Target) -> None:
    """An override that would keep it from the next boot is named; `enable` removes it."""
    launchctl(target, "disable", f"system/{AGENT}")
    [trouble] = troubles(target)
    assert f"system/{AGENT} is disabled" in trouble.finding
    follow(target, trouble.advice)
    assert troubles(target) == []


@pytest.mark.full
@pytest.mark.parametrize("label", [AGENT, "dev.journeyman.updater"])
def test_a_changed_list_is_found_and_healed(target: Target, label: str) -> None:
    """A property list that is not what belongs there is named, and it alone; installing again writes it."""
    path = Path(target.folder, f"{label}.plist")
    path.write_bytes(path.read_bytes().replace(b"<integer>30</integer>", b"<integer>3</integer>"))
    path.write_bytes(path.read_bytes().replace(b"JOURNEYMAN_UNIT", b"SOMETHING_ELSE"))
    [trouble] = troubles(target)
    assert trouble.finding == f"what is installed is not what belongs there: {path}"
    follow(target, trouble.advice)
    assert troubles(target) == []


def test_the_wrong_domain_is_found_and_healed(target: Target, tmp_path: Path) -> None:
    """A second registration, in another domain than it belongs to, is named; `bootout` removes it."""
    domain = f"user/{os.getuid()}"
    plist = tmp_path / "second.plist"
    plist.write_text(
        f'<plist version="1.0"><dict><key>Label</key><string>{AGENT}</string><key>ProgramArguments</key>'
        "<array><string>/bin/sleep</string><string>600</string></array></dict></plist>"
    )
    launchctl(target, "bootstrap", domain, str(plist))
    [trouble] = troubles(target)
    assert f"registered in {domain}" in trouble.finding
    follow(target, trouble.advice)
    eventually(lambda: troubles(target) == [], every_seconds=0.1)


@pytest.mark.full
def test_a_job_that_is_gone_is_found_and_healed(target: Target) -> None:
    """A label that launchd does not have is named; installing again registers it."""
    launchctl(target, "bootout", f"system/{AGENT}")
    eventually(
        lambda: any("is not registered" in each.finding for each in troubles(target)), every_seconds=0.1
    )
    [trouble] = troubles(target)
    follow(target, trouble.advice)
    assert troubles(target) == []
