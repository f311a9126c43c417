"""What each adapter of the port ServiceManager keeps to, on hosts with real guards and agents.

A class for each host inherits the tests and brings the fixture `host`.
"""

from __future__ import annotations

import os
import plistlib
import signal
from pathlib import Path

import pytest

from journeyman_updater.core.service_files.launchd import UNIT_VARIABLE, are_same
from journeyman_updater.errors import Reason
from journeyman_updater.model.unit import Unit
from journeyman_updater.run import Ending, compose
from tests.support.kept_host import KeptRoot, dummy
from tests.support.managed_hosts import ManagedHost, start_worker
from tests.support.waiting import eventually

VARIABLE = "BROUGHT_BY_A_RELEASE"


class ServiceManagerContract:
    """The port itself."""

    def test_it_names_the_agent_that_runs(self, host: ManagedHost) -> None:
        """The agent that the manager names is the one that reports."""
        running = host.manager.running()
        assert running is not None
        assert running.pid == host.reported_pid()
        assert running.is_running()

    def test_nothing_shows_a_start_that_there_was_not(self, host: ManagedHost) -> None:
        """As long as the same agent runs, no start is shown."""
        token = host.manager.token()
        assert not host.manager.started_since(token)

    def test_a_restart_is_in_good_order_and_proven(self, host: ManagedHost) -> None:
        """The old agent stops by itself, exactly one new one starts, and the manager shows it."""
        token, before = host.manager.token(), host.manager.running()
        assert before is not None
        host.manager.restart()
        eventually(lambda: host.manager.started_since(token))
        eventually(lambda: host.starts() == ["0.1.0", "0.1.0"])
        assert host.stops() == ["0.1.0"]
        assert not before.is_running()

    def test_an_agent_that_ignores_sigterm_is_killed_in_time(self, host: ManagedHost) -> None:
        """A stop that never comes is not waited for beyond the stop timeout."""
        deafness = host.root.run / "stubborn"
        deafness.touch()
        token = host.manager.token()
        host.manager.restart()
        deafness.unlink()
        eventually(lambda: host.manager.started_since(token))
        eventually(lambda: host.starts() == ["0.1.0", "0.1.0"])
        assert host.stops() == []

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_an_agent_that_ends_is_started_again(self, host: ManagedHost, number: signal.Signals) -> None:
        """An agent that exits 75, and one that is killed, is back, and that counts as a start."""
        token = host.manager.token()
        os.kill(host.reported_pid(), number)
        eventually(lambda: host.manager.started_since(token))
        eventually(lambda: host.starts() == ["0.1.0", "0.1.0"])

    def test_a_restart_starts_what_a_wrong_setting_had_ended(self, host: ManagedHost) -> None:
        """An agent that exits 78 is not started in a loop, and an explicit restart starts it."""
        mistake = host.root.run / "bad-config"
        mistake.touch()
        os.kill(host.reported_pid(), signal.SIGKILL)
        eventually(lambda: len(host.starts()) > 1 and host.manager.running() is None)
        mistake.unlink()
        token = host.manager.token()
        host.manager.restart()
        eventually(lambda: host.manager.started_since(token))
        eventually(lambda: host.starts() == ["0.1.0"] * 3)

    def test_a_worker_never_notices(self, host: ManagedHost) -> None:
        """A worker has the same pid after a restart, an exit 75 and a kill -9 of the agent."""
        record = start_worker(host)
        host.manager.restart()
        eventually(lambda: len(host.starts()) == 2 and host.reported() == "0.1.0")
        for number in (signal.SIGTERM, signal.SIGKILL):
            token = host.manager.token()
            os.kill(host.reported_pid(), number)
            eventually(lambda token=token: host.manager.started_since(token))  # type: ignore[misc]
            starts = len(host.starts())
            eventually(lambda starts=starts: len(host.starts()) >= starts)  # type: ignore[misc]
            eventually(lambda: host.reported() == "0.1.0")
        assert record.shim.is_running()
        assert record.worker.is_running()


class UpdateContract:
    """Whole updates on that manager."""

    @pytest.mark.parametrize(
        ("behaviour", "ending", "reason", "starts"),
        [
            ("good", Ending.COMMITTED, None, ["0.1.0", "0.2.0"]),
            ("crash", Ending.ROLLED_BACK, Reason.CRASH_LOOP, ["0.1.0", *["0.2.0"] * 3, "0.1.0"]),
            ("hang", Ending.ROLLED_BACK, Reason.NOT_READY, ["0.1.0", *["0.2.0"] * 3, "0.1.0"]),
            ("late", Ending.ROLLED_BACK, Reason.UNHEALTHY, ["0.1.0", *["0.2.0"] * 3, "0.1.0"]),
            ("mute", Ending.ROLLED_BACK, Reason.UNHEALTHY, ["0.1.0", "0.2.0", "0.1.0"]),
            ("outage", Ending.INCONCLUSIVE, Reason.UNREACHABLE, ["0.1.0", "0.2.0"]),
        ],
    )
    def test_a_release_ends_as_it_deserves(
        self, host: KeptRoot, behaviour: str, ending: Ending, reason: Reason | None, starts: list[str]
    ) -> None:
        """A good release is committed, one that fails by itself is undone, and an outage costs nothing."""
        outcome = host.updater().apply(host.request(dummy("0.2.0", behaviour)))
        assert (outcome.ending, outcome.reason) == (ending, reason), outcome
        # A manager may start the active release by itself at the moment in which the updater asks for it,
        # and then starts it once more: that costs a second, and no attempt.
        begun = host.starts()
        assert begun[: len(starts)] == starts, begun
        assert begun[len(starts) :] in ([], starts[-1:]), begun

    @pytest.mark.parametrize(
        ("behaviour", "ending", "brought"),
        [("good", Ending.COMMITTED, [True]), ("mute", Ending.ROLLED_BACK, [True, False])],
    )
    def test_a_release_brings_its_unit_and_takes_it_back(
        self, host: KeptRoot, behaviour: str, ending: Ending, brought: list[bool]
    ) -> None:
        """The trial is started by the unit that it brings, and after a rollback the old one is in force."""
        paths = compose(host.root, host.settings, lambda _here, _total: None).unit.paths()
        old = {name: path.read_bytes() for name, path in paths.items()}
        new = Unit({name: _with_a_variable(name, content) for name, content in old.items()})
        outcome = host.updater().apply(host.request(dummy("0.2.0", behaviour, new)))
        assert outcome.ending is ending, outcome
        assert _has_variable(host.reported_pid()) is brought[-1]
        kept = new.files if brought[-1] else old
        found = {name: path.read_bytes() for name, path in paths.items()}
        assert all(are_same(found[name], kept[name]) for name in paths)
        assert {path.stat().st_mode & 0o777 for path in paths.values()} <= {0o644, 0o755}
        assert host.starts()[: len(brought) + 1] == ["0.1.0", "0.2.0", "0.1.0"][: len(brought) + 1]


def _with_a_variable(name: str, content: bytes) -> bytes:
    """The same file of a service, which gives the agent one variable more."""
    if name.endswith(".plist"):
        plist = plistlib.loads(content)
        environment = {**plist["EnvironmentVariables"], VARIABLE: "1", UNIT_VARIABLE: "brought"}
        return plistlib.dumps({**plist, "EnvironmentVariables": environment})
    text = content.decode()
    text = text.replace("[Service]\n", f"[Service]\nEnvironment={VARIABLE}=1\n")
    return text.replace("\nexport PATH", f"\nexport {VARIABLE}=1\nexport PATH").encode()


def _has_variable(pid: int) -> bool:
    return f"{VARIABLE}=1".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
