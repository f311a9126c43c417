"""launchd, the service manager of macOS.

A restart is the agent's own stop: SIGTERM, and a nudge when it has ended, as launchd may keep the next
start back.  SIGKILL (`kickstart -k`) is for an agent that has not stopped in time.  That launchd did it is
proven by `core/launchd_proof.py`, never by an exit code.
"""

from __future__ import annotations

from journeyman_updater.adapters.service.launchctl import Found, Launchctl, first_line
from journeyman_updater.adapters.service.launchd_registration import LaunchdRegistration
from journeyman_updater.contract import ProcessIdentity, boot_id, identity_of
from journeyman_updater.core.launchd_proof import Sight, is_new_start
from journeyman_updater.core.launchd_text import PrintedJob
from journeyman_updater.core.service_files.launchd import UNIT_VARIABLE
from journeyman_updater.errors import Reason, RestartError
from journeyman_updater.ports import CommandResult, RestartToken

_LEAVING = "SIG"
"""`state = SIGTERMed`: the job is being removed, and nothing can be asked of it."""
_KILLED_SECONDS = 5.0


class LaunchdServiceManager:
    """Implements the port ServiceManager.

    Args:
        launchctl: for the agent's label.
        registration: of the agent's job.
        stop_seconds: how long the agent may take to stop in good order.
    """

    def __init__(
        self, launchctl: Launchctl, registration: LaunchdRegistration, *, stop_seconds: float = 30.0
    ) -> None:
        self._launchctl = launchctl
        self._registration = registration
        self._stop_seconds = stop_seconds
        # The sign of our last token, and that of the one after which we saw that nothing was registered.
        self._last_sign = ""
        self._absent_after = ""

    def running(self) -> ProcessIdentity | None:
        return _process(self._launchctl.running())

    def token(self) -> RestartToken:
        look = self._launchctl.look()
        if not look.found and look.doubtful:
            # What is not known now cannot be told from what comes later: nothing will be proven by this.
            return RestartToken(None)
        found = look.first
        self._last_sign = _sight(found).to_sign()
        return RestartToken(_process(found.job if found else None), self._last_sign)

    def restart(self) -> None:
        """Stops the agent and has it started again; returns once a start shows.

        Raises:
            RestartError: RestartNotPermitted, OldPlist, DomainUnavailable, ServiceDisabled, or
                RestartUnproven where launchctl was content and nothing happened.
        """
        look = self._launchctl.look()
        found = look.first
        if found is None:
            if look.doubtful:
                raise RestartError(
                    Reason.RESTART_NOT_PERMITTED,
                    f"launchctl does not tell where the agent is registered: {look.doubtful[0]}",
                    f"Look at `launchctl print {self._launchctl.domains[0]}/{self._launchctl.label}`.",
                )
            self._absent_after = self._last_sign
            self._registration.create(self._launchctl.domains[0])
        elif self._registration.is_old(found) or (found.job.state or "").startswith(_LEAVING):
            self._registration.renew(found)
            self._absent_after = self._last_sign
        else:
            self._stop(found)
            self._registration.spawn(found.domain, found.job.runs)

    def started_since(self, token: RestartToken) -> bool:
        """Whether launchd shows a new start; see the port."""
        before = Sight.from_sign(token.sign)
        found = self._launchctl.look().found
        # With two registrations it is in doubt which one was asked.
        if before is None or len(found) != 1:
            return False
        new = _process(found[0].job)
        if new is None:
            return False
        seen_absent = self._absent_after == token.sign
        return is_new_start(before, token.before, _sight(found[0]), new, seen_absent=seen_absent)

    def _stop(self, found: Found) -> None:
        """Ends the process that runs, in good order if it lets us."""
        old = _process(found.job)
        if old is None:
            return
        asked = self._launchctl.terminate(found.domain)
        if self._is_gone(old, self._stop_seconds):
            return
        # Only an agent that was asked to stop may be killed for not doing so.
        answer = asked if asked.code else self._launchctl.kickstart(found.domain, kill=True)
        if asked.code or not self._is_gone(old, _KILLED_SECONDS):
            raise self._not_stopped(found, answer)

    def _is_gone(self, old: ProcessIdentity, seconds: float) -> bool:
        return self._registration.wait(lambda: not old.is_running(), seconds)

    def _not_stopped(self, found: Found, answer: CommandResult) -> RestartError:
        target = f"{found.domain}/{self._launchctl.label}"
        if answer.code == 0:
            return RestartError(
                Reason.RESTART_UNPROVEN,
                f"launchctl said that it restarts {target}, and the old agent still runs",
                f"Look at `launchctl print {target}`.",
            )
        return RestartError(
            Reason.RESTART_NOT_PERMITTED,
            f"launchctl does not stop {target}: {first_line(answer)}",
            "Run the updater as root for a system install, as the agent's user otherwise.",
        )


def _process(job: PrintedJob | None) -> ProcessIdentity | None:
    return identity_of(job.pid) if job is not None and job.pid is not None else None


def _sight(found: Found | None) -> Sight:
    if found is None:
        return Sight(boot_id(), None)
    unit = (found.job.environment or {}).get(UNIT_VARIABLE)
    return Sight(boot_id(), found.domain, found.job.runs, unit)
