"""launchd in the contract suite: the fake one, and on a Mac the real one under a throwaway label."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Literal, TextIO

from journeyman_updater.adapters.command_runner import SubprocessCommandRunner
from journeyman_updater.adapters.service.launchctl import Launchctl
from journeyman_updater.adapters.service.launchd import LaunchdServiceManager
from journeyman_updater.adapters.service.launchd_registration import LaunchdRegistration
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.core.service_files.launchd import LaunchdSettings, render_agent
from journeyman_updater.ports import Clock, CommandResult, CommandRunner, ServiceManager
from tests.support.fake_launchctl import FakeLaunchctl
from tests.support.fake_launchd import FakeLaunchd
from tests.support.manager_bench import HastyClock
from tests.support.tiny_agent import TinyAgent
from tests.support.waiting import eventually

DOMAINS = ("system", "gui/501", "user/501")
SCALE = 0.02


def agent_plist(
    folder: Path,
    agent: TinyAgent,
    domain: str,
    label: str,
    *,
    stop_seconds: int = 30,
    environment: dict[str, str] | None = None,
) -> bytes:
    """The agent's list as an installation would render it."""
    kinds: dict[str, Literal["system", "gui", "user"]] = {"system": "system", "gui": "gui", "user": "user"}
    settings = LaunchdSettings(
        kind=kinds[domain.partition("/")[0]],
        guard=str(agent.program),
        updater="/usr/bin/true",
        root=str(folder),
        log_folder=str(folder),
        uid=501,
        stop_seconds=stop_seconds,
        environment=environment or {},
        agent_label=label,
    )
    return render_agent(settings)


class FakeLaunchdBench:
    """Implements `ManagerBench` over the fake launchd and a real executable named launchctl.

    Args:
        folder: for all files.
        domain: where the job belongs.
        domains: that exist.
    """

    label = "dev.journeyman.agent"

    def __init__(self, folder: Path, domain: str = "system", domains: tuple[str, ...] = DOMAINS) -> None:
        self.folder = folder
        self.domain = domain
        self.agent = TinyAgent(folder)
        self.launchd = FakeLaunchd(folder, domains=set(domains), scale=SCALE)
        self.tool = FakeLaunchctl(self.launchd)
        self.plist = self.launchd.launch_daemons / f"{self.label}.plist"
        self.write_plist()
        self.clock: Clock = HastyClock(0.2)
        self.launchctl = self.new_launchctl()
        self.manager: ServiceManager = self.new_manager()

    def registration(self) -> LaunchdRegistration:
        return LaunchdRegistration(
            self.launchctl, self.plist, self.clock, bootstrap_seconds=4, spawn_seconds=3, poll_seconds=0.2
        )

    def new_manager(self) -> LaunchdServiceManager:
        """A manager as the next run of the updater makes it: it remembers nothing."""
        return LaunchdServiceManager(self.launchctl, self.registration(), stop_seconds=10)

    def write_plist(self, stop_seconds: int = 30, **environment: str) -> None:
        """Changes the file; launchd does not notice."""
        text = agent_plist(
            self.folder,
            self.agent,
            self.domain,
            self.label,
            stop_seconds=stop_seconds,
            environment=environment,
        )
        self.plist.write_bytes(text)

    def start(self) -> None:
        self.launchd.register(self.domain, self.plist)

    def take_down(self) -> None:
        before = self.agent.pid()
        self.launchctl.bootout(self.domain)
        eventually(lambda: self.launchctl.look().is_absent)
        assert before is not None

    def lie(self) -> None:
        self.launchd.faults.lies |= {"kill", "kickstart", "kickstart -k"}

    def close(self) -> None:
        self.tool.close()

    def acts(self) -> list[str]:
        """What launchctl was asked to do: its verbs in order, mere looks left out."""
        return [
            " ".join(word for word in call if word in {call[0], "-k"})
            for call in self.tool.calls
            if not call[0].startswith("print")
        ]

    def new_launchctl(self, *, timeout_seconds: float = 5) -> Launchctl:
        """The tool as PATH finds it."""
        path = f"{self.tool.folder}:{os.environ['PATH']}"
        program = shutil.which("launchctl", path=path)
        assert program is not None
        others = tuple(other for other in DOMAINS if other != self.domain)
        return Launchctl(
            SubprocessCommandRunner({"PATH": path}),
            self.label,
            (self.domain, *others),
            program=program,
            timeout_seconds=timeout_seconds,
        )


class RecordingRunner:
    """Implements CommandRunner: runs commands for real and writes each reply down, one JSON line each."""

    def __init__(self, inner: CommandRunner, log: TextIO) -> None:
        self._inner = inner
        self._log = log

    def run(self, *command: str, timeout_seconds: float) -> CommandResult:
        result = self._inner.run(*command, timeout_seconds=timeout_seconds)
        line = {"macos": platform.mac_ver()[0], "command": command, "code": result.code}
        self._log.write(json.dumps({**line, "stdout": result.stdout, "stderr": result.stderr}) + "\n")
        self._log.flush()
        return result


class RealLaunchdBench:
    """Implements `ManagerBench` on a Mac, in the domain of whoever runs the tests.

    Args:
        folder: for the agent.
        record: the file to which launchctl's replies are added.
    """

    def __init__(self, folder: Path, record: Path) -> None:
        self.agent = TinyAgent(folder)
        self._folder = Path(tempfile.mkdtemp(prefix="journeyman-launchd-"))
        self._log = record.open("a")
        label = f"dev.journeyman.test-{secrets.token_hex(4)}"
        runner = RecordingRunner(SubprocessCommandRunner(), self._log)
        self._domain = self._own_domain(runner)
        self._plist = self._folder / f"{label}.plist"
        self._plist.write_bytes(agent_plist(self._folder, self.agent, self._domain, label, stop_seconds=5))
        self._launchctl = Launchctl(runner, label, (self._domain,))
        self._registration = LaunchdRegistration(self._launchctl, self._plist, SystemClock())
        self.manager: ServiceManager = LaunchdServiceManager(
            self._launchctl, self._registration, stop_seconds=2
        )

    def start(self) -> None:
        self._registration.create(self._domain)

    def take_down(self) -> None:
        self._launchctl.bootout(self._domain)
        eventually(lambda: self._launchctl.look().is_absent, within_seconds=30)

    def lie(self) -> None:
        raise NotImplementedError("the real launchd cannot be told to lie")

    def close(self) -> None:
        self.take_down()
        self._log.close()
        shutil.rmtree(self._folder)

    @staticmethod
    def _own_domain(runner: CommandRunner) -> str:
        if os.geteuid() == 0:
            return "system"
        gui = f"gui/{os.geteuid()}"
        has_gui = runner.run("/bin/launchctl", "print", gui, timeout_seconds=15).code == 0
        return gui if has_gui else f"user/{os.geteuid()}"
