"""What keeps a host awake: a caffeinate of our own that is a real process, and the Termux side of a phone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from journeyman.adapters.caffeinate import Caffeinate
from journeyman.adapters.termux_wake_lock import TermuxWakeLock
from journeyman.errors import HostError
from journeyman.ports import SleepAssertion
from tests.support.proot import TermuxHost
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
# What caffeinate(8) says of -i and -w: awake for as long as that process lives.
CAFFEINATE = """#!/bin/sh
[ "$1 $2" = "-i -w" ] || exit 64
echo $$ >> "{folder}/caffeinated"
while kill -0 "$3" 2>/dev/null; do sleep 0.1; done
"""
# Holds, says so, and never lets go.
HOLDER = """
import sys, time
from pathlib import Path
from {module} import {name}
held = {name}({argument})
held.hold()
print("holds", flush=True)
time.sleep(600)
"""


class Host(Protocol):
    """A host that can be kept awake."""

    def assertion(self) -> SleepAssertion: ...

    def awake(self) -> bool:
        """Whether the host itself keeps awake."""
        ...

    def requests(self) -> int:
        """How often it was asked to."""
        ...

    def holder(self) -> str:
        """A program that holds and never lets go."""
        ...


class Mac:
    """As far as caffeinate goes."""

    def __init__(self, folder: Path) -> None:
        self._list = folder / "caffeinated"
        self._program = folder / "caffeinate"
        self._program.write_text(CAFFEINATE.format(folder=folder))
        self._program.chmod(0o755)

    def assertion(self) -> SleepAssertion:
        return Caffeinate(str(self._program))

    def _pids(self) -> list[int]:
        return [int(pid) for pid in self._list.read_text().split()] if self._list.exists() else []

    def awake(self) -> bool:
        for pid in self._pids():
            try:
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    return True
            except psutil.NoSuchProcess:
                continue
        return False

    def requests(self) -> int:
        return len(self._pids())

    def holder(self) -> str:
        argument = repr(str(self._program))
        return HOLDER.format(module=Caffeinate.__module__, name="Caffeinate", argument=argument)


class Phone:
    """With the service of `proot/install.sh`."""

    def __init__(self, host: TermuxHost) -> None:
        self._termux = host.termux

    def assertion(self) -> SleepAssertion:
        return TermuxWakeLock(self._termux.shared)

    def awake(self) -> bool:
        return self._termux.wakefulness()[-1:] == ["lock"]

    def requests(self) -> int:
        return self._termux.wakefulness().count("lock")

    def holder(self) -> str:
        argument = f"Path({str(self._termux.shared)!r})"
        return HOLDER.format(module=TermuxWakeLock.__module__, name="TermuxWakeLock", argument=argument)


@pytest.fixture(params=["mac", "phone"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    if request.param == "mac":
        yield Mac(tmp_path)
        return
    phone = TermuxHost(tmp_path / "phone")
    try:
        phone.start("--every", "1")
        yield Phone(phone)
    finally:
        phone.stop()


def test_a_host_is_awake_for_as_long_as_it_is_asked_to_be(host: Host) -> None:
    """Asked twice is asked once; let go of is let go of, twice too; and it can be asked again."""
    assertion = host.assertion()
    assert not assertion.is_held()
    for times in (1, 2):
        assertion.hold()
        eventually(assertion.is_held, within_seconds=30)
        eventually(host.awake, within_seconds=30)
        assertion.hold()
        assert host.requests() == times
        assertion.release()
        eventually(lambda: not assertion.is_held() and not host.awake(), within_seconds=30)
        assertion.release()


def test_nothing_keeps_the_host_awake_for_a_process_that_was_killed(host: Host) -> None:
    """A SIGKILL leaves nobody to let go, and it is let go of all the same."""
    with subprocess.Popen([sys.executable, "-c", host.holder()], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        eventually(host.awake, within_seconds=30)
        os.kill(holder.pid, signal.SIGKILL)
    eventually(lambda: not host.awake(), within_seconds=40)


def test_what_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    """Neither a Mac without caffeinate nor a guest without a Termux side is said to be kept awake."""
    for assertion in (Caffeinate(str(tmp_path / "none")), TermuxWakeLock(tmp_path / "none")):
        with pytest.raises(HostError):
            assertion.hold()
        assert not assertion.is_held()
        assertion.release()


def test_a_keeper_that_has_gone_keeps_nobody_awake(tmp_path: Path) -> None:
    """What it said last is not believed."""
    (tmp_path / "wake-lock").write_text("held\n")
    (tmp_path / "keeper").write_text("1 1\n")
    assertion = TermuxWakeLock(tmp_path)
    assertion.hold()
    assert not assertion.is_held()
