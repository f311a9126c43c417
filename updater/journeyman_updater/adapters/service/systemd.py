"""systemd, the system's manager or a user's own, by systemctl.

A restart is queued in the manager (`--no-block`), so that it goes on if the caller lives in the unit itself,
and is then looked for: InvocationID and MainPID.  systemctl's exit code and NRestarts prove nothing.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Mapping
from pathlib import Path

from journeyman_updater.contract import ProcessIdentity, identity_of, write_durably
from journeyman_updater.core.service_files.systemd import AGENT_UNIT
from journeyman_updater.core.systemd_facts import (
    PROPERTIES,
    UnitFacts,
    check_startable,
    parse_show,
    refusal,
    unproven,
)
from journeyman_updater.errors import HostError, Reason, RestartError
from journeyman_updater.ports import Clock, CommandResult, CommandRunner, RestartToken

CALL_SECONDS = 20.0
LINGER = Path("/var/lib/systemd/linger")


def user_environment(uid: int) -> dict[str, str]:
    """What systemctl needs to find a user's manager where no login has set it, as in cron or over sudo."""
    return {"XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"}


class SystemdServiceManager:
    """Implements the port ServiceManager.

    Args:
        runner: runs systemctl, with the environment of `user_environment` for a user's manager.
        clock: for the wait until a start shows.
        user: whether it is the caller's own manager rather than the system's.
        unit_folder: where unit files are installed.
        unit: the agent's unit.
        stop_seconds: how long the unit lets the agent stop.
        start_seconds: from the stop to the new start.
        poll_seconds: between two looks.
    """

    def __init__(
        self,
        runner: CommandRunner,
        clock: Clock,
        *,
        user: bool,
        unit_folder: Path,
        unit: str = AGENT_UNIT,
        stop_seconds: float = 30.0,
        start_seconds: float = 10.0,
        poll_seconds: float = 0.2,
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._scope = ("--user",) if user else ()
        self._unit_folder = unit_folder
        self._unit = unit
        self._wait_seconds = stop_seconds + start_seconds
        self._poll_seconds = poll_seconds

    @property
    def unit_folder(self) -> Path:
        """Where unit files are installed."""
        return self._unit_folder

    def facts(self) -> UnitFacts:
        """What the manager says of the agent's unit.

        Raises:
            RestartError: DomainUnavailable, RestartNotPermitted; it cannot be asked.
        """
        shown = self._systemctl("show", self._unit, f"--property={','.join(PROPERTIES)}")
        if shown.code != 0:
            raise refusal(self._unit, shown.stderr, self._spelled)
        return parse_show(shown.stdout)

    def running(self) -> ProcessIdentity | None:
        return self._process(self.facts())

    def token(self) -> RestartToken:
        facts = self.facts()
        return RestartToken(self._process(facts), facts.invocation_id)

    def started_since(self, token: RestartToken) -> bool:
        return self._shows_start(token, self.facts())

    def restart(self) -> None:
        """Heals what would keep the restart from happening, asks for it, and returns once a start shows.

        Raises:
            RestartError: ServiceDisabled, NeedDaemonReload, StartLimited, DomainUnavailable,
                RestartNotPermitted, or RestartUnproven where systemctl was content and nothing happened.
        """
        self._reload()
        token = self.token()
        # It also sets the counter of starts back, which a crashing trial may have used up.
        self._systemctl("reset-failed", self._unit)
        asked = self._systemctl("restart", "--no-block", self._unit)
        if asked.code != 0:
            raise refusal(self._unit, asked.stderr, self._spelled)
        self._wait_for_start(token)

    def install(self, files: Mapping[str, str]) -> None:
        """Writes unit files, once `systemd-analyze verify` finds nothing wrong with them.

        Args:
            files: the text of each unit by its name, see `render_systemd`.

        Raises:
            HostError: NotWritable; nothing was changed if a unit is not sound.
        """
        self.verify(files)
        try:
            self._unit_folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                write_durably(self._unit_folder / name, text.encode(), mode=0o644)
        except OSError as error:
            raise HostError(
                Reason.NOT_WRITABLE,
                f"{self._unit_folder} cannot be written: {error.strerror}",
                "Run it as root.",
            ) from error
        self._must("daemon-reload")

    def enable(self, *units: str) -> None:
        """Starts units now and at each boot, or at each login of a user who does not linger.

        Raises:
            RestartError: the manager refuses.
        """
        self._must("enable", *units)
        self._systemctl("reset-failed", *units)
        self._must("start", "--no-block", *units)

    def uninstall(self, *units: str) -> None:
        """Stops units, and removes their files and links.  Not an error if there are none.

        Workers go on, as they do after each stop: whoever uninstalls ends them, see `end_workers`.

        Raises:
            RestartError: the manager cannot be reached, or a unit does not stop.
        """
        here = [unit for unit in units if (self._unit_folder / unit).exists()]
        if here:
            self._must("disable", *here)
            self._must("stop", *here)
        for unit in here:
            (self._unit_folder / unit).unlink(missing_ok=True)
        self._must("daemon-reload")
        self._systemctl("reset-failed", *units)

    def lingers(self) -> bool:
        """Whether it runs without a login: always true of the system's manager."""
        return not self._scope or (LINGER / pwd.getpwuid(os.getuid()).pw_name).exists()

    def verify(self, files: Mapping[str, str]) -> None:
        """Raises HostError if `systemd-analyze verify` finds fault with unit files; nothing is written."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in files]
            for path, text in zip(paths, files.values(), strict=True):
                path.write_text(text)
            checked = self._runner.run(
                "systemd-analyze", *self._scope, "verify", *map(str, paths), timeout_seconds=CALL_SECONDS
            )
        # Exit codes differ between versions, and complaints about units of the host are not ours to mend.
        ours = [line for line in checked.stderr.splitlines() if any(name in line for name in files)]
        if ours:
            raise HostError(
                Reason.SELF_UPDATE_UNAVAILABLE,
                f"systemd finds fault with our units: {ours[0].replace(f'{folder}/', '')}",
                "Nothing was installed. Check that the paths in the unit exist.",
            )

    def _reload(self) -> None:
        # Always: NeedDaemonReload does not show a folder of drop-ins that was made since the last load.
        self._must("daemon-reload")
        facts = self.facts()
        check_startable(self._unit, facts, self._spelled)
        if facts.needs_reload:
            raise RestartError(
                Reason.NEED_DAEMON_RELOAD,
                f"{self._unit} has changed and systemd still has the old one",
                f"Run `{self._spelled} daemon-reload`.",
            )

    def _wait_for_start(self, token: RestartToken) -> None:
        # Counted in polls, so that a clock that stands still cannot keep us here.
        for _ in range(int(self._wait_seconds / self._poll_seconds)):
            facts = self.facts()
            # Whether what was started also stays is for the watch over the trial to judge.
            if facts.invocation_id not in {"", token.sign}:
                return
            if facts.result == "start-limit-hit":
                break
            self._clock.wait(self._poll_seconds)
        raise unproven(self._unit, self.facts(), self._spelled)

    def _shows_start(self, token: RestartToken, facts: UnitFacts) -> bool:
        running = self._process(facts)
        return running not in {None, token.before} and facts.invocation_id not in {"", token.sign}

    def _process(self, facts: UnitFacts) -> ProcessIdentity | None:
        return identity_of(facts.main_pid) if facts.main_pid else None

    def _must(self, *arguments: str) -> None:
        done = self._systemctl(*arguments)
        if done.code != 0:
            raise refusal(self._unit, done.stderr, self._spelled)

    def _systemctl(self, *arguments: str) -> CommandResult:
        return self._runner.run(
            "systemctl",
            *self._scope,
            "--no-ask-password",
            "--no-pager",
            *arguments,
            timeout_seconds=max(CALL_SECONDS, self._wait_seconds + 10),
        )

    @property
    def _spelled(self) -> str:
        return " ".join(("systemctl", *self._scope))
