"""Registers a job with launchd, and registers it anew when its property list has changed.

launchd keeps the list that it was given in memory, so a changed file needs `bootout` and `bootstrap`.
`bootout` returns at once and the old registration lingers until its process has ended; meanwhile `bootstrap`
fails with a code that means many things.  So the old one is waited for, and then it is looked at whether the
new one is there.
"""

from __future__ import annotations

import contextlib
import plistlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from journeyman_updater.adapters.service.launchctl import Found, Launchctl, first_line
from journeyman_updater.contract import write_durably
from journeyman_updater.core.launchd_text import NO_SUCH_DOMAIN
from journeyman_updater.core.service_files.launchd import UNIT_VARIABLE, marked, problems, unit_of
from journeyman_updater.errors import HostError, Reason, RestartError
from journeyman_updater.ports import Clock, CommandResult

_EXIT_TIMEOUT_SECONDS = 20
"""launchd's default."""
_LINGER_SECONDS = 5


class LaunchdRegistration:
    """One job's registration.

    Args:
        launchctl: for its label.
        plist: its property list.
        clock: for the waits.
        bootstrap_seconds: how long `bootstrap` is tried.
        spawn_seconds: how long a kickstarted job may take to be spawned before it is kickstarted again; above
            ThrottleInterval.
        poll_seconds: between two looks.
    """

    def __init__(
        self,
        launchctl: Launchctl,
        plist: Path,
        clock: Clock,
        *,
        bootstrap_seconds: float = 60.0,
        spawn_seconds: float = 15.0,
        poll_seconds: float = 0.25,
    ) -> None:
        self._launchctl = launchctl
        self._plist = plist
        self._clock = clock
        self._bootstrap_seconds = bootstrap_seconds
        self._spawn_seconds = spawn_seconds
        self._poll_seconds = poll_seconds

    def install(self, text: bytes) -> None:
        """Writes the property list, unless launchd would ignore or refuse a part of it.

        Raises:
            HostError: NotWritable, SelfUpdateUnavailable; the file is as it was.
        """
        check_list(text, self._plist.name)
        try:
            write_durably(self._plist, text, mode=0o644)
        except OSError as error:
            raise HostError(
                Reason.NOT_WRITABLE, f"{self._plist} cannot be written: {error.strerror}", "Run it as root."
            ) from error

    def uninstall(self) -> None:
        """Removes the registrations in all domains and the file.  Not an error if there are none.

        Raises:
            RestartError: RestartNotPermitted, RestartUnproven; the file is still there.
        """
        look = self._launchctl.look()
        for found in look.found:
            self._remove(found)
        self._plist.unlink(missing_ok=True)

    def is_old(self, found: Found) -> bool:
        """Whether launchd holds another list than the file; False if it does not show what it holds."""
        environment = found.job.environment
        try:
            wanted = unit_of(plistlib.loads(self._plist.read_bytes()))
        except (OSError, ValueError, plistlib.InvalidFileException):
            return False
        return wanted is not None and environment is not None and environment.get(UNIT_VARIABLE) != wanted

    def renew(self, found: Found) -> None:
        """Removes the old registration, waits until it is gone, and makes the new one in the same domain.

        Raises:
            RestartError: as `create`, and RestartUnproven if the old registration stays.
        """
        self._check()
        self._remove(found)
        self.create(found.domain)

    def create(self, domain: str) -> None:
        """Registers the job where there is none, and starts it.

        Raises:
            RestartError: OldPlist for an unfit list; DomainUnavailable, ServiceDisabled, RestartNotPermitted,
                RestartUnproven.
        """
        self._check()
        self._mark()
        # An override survives a removal, and any code or none at all may be what it looks like.
        self._launchctl.enable(domain)
        last = CommandResult(0)

        def is_there() -> bool:
            nonlocal last
            last = self._launchctl.bootstrap(domain, str(self._plist))
            return last.code in NO_SUCH_DOMAIN or self._launchctl.look((domain,)).first is not None

        is_registered = self.wait(is_there, self._bootstrap_seconds)
        if last.code in NO_SUCH_DOMAIN:
            raise RestartError(
                Reason.DOMAIN_UNAVAILABLE,
                f"launchd has no domain {domain} now: {first_line(last)}",
                "A gui domain needs a login to the desktop; a system install needs none.",
            )
        if not is_registered:
            raise self._refused(domain, last)
        self.spawn(domain, 0)

    def spawn(self, domain: str, runs: int | None) -> None:
        """Starts a registered job that does not run; launchd may keep it back for as long as it likes.

        Args:
            domain: that has it.
            runs: its counter before; one that has risen is a start, even if it did not last.

        Raises:
            RestartError: ServiceDisabled; RestartUnproven if launchd was content and nothing happened.
        """
        last = CommandResult(0)
        for _ in range(2):
            last = self._launchctl.kickstart(domain)
            if self.wait(lambda: self._has_started(domain, runs), self._spawn_seconds):
                return
            self._launchctl.enable(domain)
        if self._launchctl.is_disabled(domain):
            raise self._disabled(domain)
        target = f"{domain}/{self._launchctl.label}"
        raise RestartError(
            Reason.RESTART_UNPROVEN,
            f"launchd was asked to start {target} and shows no start: {first_line(last)}",
            f"Look at `launchctl print {target}`.",
        )

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Polls; counted, so that a clock that stands still cannot keep us here."""
        for _ in range(int(seconds / self._poll_seconds)):
            if condition():
                return True
            self._clock.wait(self._poll_seconds)
        return condition()

    def _remove(self, found: Found) -> None:
        last = self._launchctl.bootout(found.domain)
        patience = (found.job.exit_timeout_seconds or _EXIT_TIMEOUT_SECONDS) + _LINGER_SECONDS
        if not self.wait(lambda: self._launchctl.look((found.domain,)).is_absent, patience):
            target = f"{found.domain}/{self._launchctl.label}"
            raise RestartError(
                Reason.RESTART_UNPROVEN,
                f"launchd was asked to remove {target} and has it after {patience} s: {first_line(last)}",
                "Run it as root for a system install, as the agent's user otherwise.",
            )

    def _has_started(self, domain: str, runs: int | None) -> bool:
        found = self._launchctl.look((domain,)).first
        if found is None:
            return False
        has_run_more = runs is not None and found.job.runs is not None and found.job.runs > runs
        return found.job.pid is not None or has_run_more

    def _check(self) -> None:
        """Looks at all that launchd would answer with a bare 5, before anything is stopped."""
        try:
            found = _unfit(self._plist.read_bytes())
        except OSError as error:
            found = [str(error.strerror)]
        if found:
            raise RestartError(
                Reason.OLD_PLIST,
                f"{self._plist} cannot be registered: {'; '.join(found)}",
                "Install the service again.",
            )

    def _mark(self) -> None:
        # Where the file is not ours to write, the registration is told from others by its list alone.
        with contextlib.suppress(OSError):
            write_durably(self._plist, marked(self._plist.read_bytes(), secrets.token_hex(4)), mode=0o644)

    def _refused(self, domain: str, last: CommandResult) -> RestartError:
        if self._launchctl.is_disabled(domain):
            return self._disabled(domain)
        return RestartError(
            Reason.RESTART_NOT_PERMITTED,
            f"launchd does not register {self._plist}: {first_line(last)}",
            "The file has to belong to root for the system domain, and to its user otherwise, mode 0644.",
        )

    def _disabled(self, domain: str) -> RestartError:
        target = f"{domain}/{self._launchctl.label}"
        return RestartError(
            Reason.SERVICE_DISABLED,
            f"{target} is disabled, and stays so",
            f"Run `launchctl enable {target}` as the owner of that domain.",
        )


def check_list(text: bytes, name: str) -> None:
    """Raises HostError for a property list of which launchd would ignore or refuse a part."""
    found = _unfit(text)
    if found:
        raise HostError(
            Reason.SELF_UPDATE_UNAVAILABLE,
            f"{name} is not sound: {'; '.join(found)}",
            "Nothing was installed. Check that the paths in it exist.",
        )


def _unfit(text: bytes) -> list[str]:
    try:
        plist: Any = plistlib.loads(text)
    except (ValueError, plistlib.InvalidFileException) as error:
        return [f"it is no property list: {error}"]
    if not isinstance(plist, dict):
        return ["it holds no dictionary"]
    return problems(plist) or _missing(plist)


def _missing(plist: dict[str, Any]) -> list[str]:
    program = Path(plist["ProgramArguments"][0])
    logs = {Path(plist[key]).parent for key in ("StandardOutPath", "StandardErrorPath") if key in plist}
    lines = [] if program.is_file() else [f"there is no {program}"]
    return lines + [f"there is no folder {folder}" for folder in sorted(logs) if not folder.is_dir()]
