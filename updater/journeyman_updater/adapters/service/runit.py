"""runit, and termux-services, which is runit: `sv` is asked, `supervise/status` is believed.

`sv restart` looks at seconds of the wall clock, so after a clock step, or within the second of the last
start, it reports an old process as the new one.  It also kills nothing that ignores SIGTERM.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from journeyman_updater.contract import ProcessIdentity, identity_of, write_durably
from journeyman_updater.core.runit_status import RunitStatus, parse_status
from journeyman_updater.errors import HostError, Reason, RestartError
from journeyman_updater.ports import Clock, CommandRunner, RestartToken

STATUS = Path("supervise", "status")
ALIVE = Path("supervise", "ok")


class RunitServiceManager:
    """Implements the port ServiceManager.

    Args:
        runner: runs `sv`.
        clock: for the wait until a start shows.
        service: the folder that runsvdir watches, with the name of the service as its last part.
        definition: where the files of the service are installed; `service` becomes a link to it.
        stop_seconds: how long the agent may take to stop in good order, before it is killed.
        start_seconds: from the stop to the new start; runsv itself waits a second after a short run.
        poll_seconds: between two looks.
    """

    def __init__(
        self,
        runner: CommandRunner,
        clock: Clock,
        *,
        service: Path,
        definition: Path,
        stop_seconds: float = 30.0,
        start_seconds: float = 10.0,
        poll_seconds: float = 0.1,
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._service = service
        self._definition = definition
        self._stop_seconds = stop_seconds
        self._start_seconds = start_seconds
        self._poll_seconds = poll_seconds

    def status(self) -> RunitStatus:
        """What runsv has written; its last word means nothing once it has gone.

        Raises:
            RestartError: DomainUnavailable where no runsv keeps the service, RestartNotPermitted where it
                is not ours.
        """
        try:
            # runsv holds the far end of this pipe for as long as it lives.
            os.close(os.open(self._service / ALIVE, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            return parse_status((self._service / STATUS).read_bytes())
        except PermissionError as error:
            raise RestartError(
                Reason.RESTART_NOT_PERMITTED,
                f"{self._service} belongs to another user",
                "Run it as the user who runs runsvdir.",
            ) from error
        except (OSError, ValueError) as error:
            raise RestartError(
                Reason.DOMAIN_UNAVAILABLE,
                f"no runsv keeps {self._service}: {error}",
                "Start runsvdir; in Termux, `pkg install termux-services` and open a new session.",
            ) from error

    def running(self) -> ProcessIdentity | None:
        return self._process(self.status())

    def token(self) -> RestartToken:
        status = self.status()
        return RestartToken(self._process(status), status.sign)

    def started_since(self, token: RestartToken) -> bool:
        status = self.status()
        return self._process(status) not in {None, token.before} and status.sign not in {"", token.sign}

    def restart(self) -> None:
        """Asks with SIGTERM, kills after the stop timeout, and returns once a start shows.

        Raises:
            RestartError: DomainUnavailable where no runsv answers; RestartUnproven where `sv` was content and
                nothing happened.
        """
        token = self.token()
        # We look for ourselves, so sv need not wait, and its verdict is not asked for.
        asked = self._sv("-w", "1", "restart")
        if not self._shows_start(token, self._stop_seconds):
            status = self.status()
            # Where nothing ran, a `down` of the finish script may have come after our `up`.
            is_deaf = status.got_term and self._process(status) is not None
            self._sv("kill" if is_deaf else "up")
            if not self._shows_start(token, self._start_seconds):
                raise RestartError(
                    Reason.RESTART_UNPROVEN,
                    f"{self._service.name} shows no new start (sv said: {asked or 'nothing'})",
                    f"See what it does: `sv status {self._service}`, and its log.",
                )

    def install(self, files: Mapping[str, str]) -> None:
        """Writes the files of the service; each may be executed.

        Args:
            files: the text of each by its path below the service's folder, see `render_runit`.

        Raises:
            HostError: NotWritable.
        """
        try:
            for name, text in files.items():
                path = self._definition / name
                path.parent.mkdir(parents=True, exist_ok=True)
                write_durably(path, text.encode(), mode=0o755)
        except OSError as error:
            raise HostError(
                Reason.NOT_WRITABLE,
                f"{self._definition} cannot be written: {error.strerror}",
                "Run it as the user who runs runsvdir.",
            ) from error

    def enable(self) -> None:
        """Lets runsvdir find the service, now and at each start of runsvdir; it looks every five seconds."""
        if not self._service.exists():
            temporary = self._service.with_name(f".{self._service.name}.tmp")
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(self._definition)
            os.replace(temporary, self._service)

    def uninstall(self) -> None:
        """Stops the service and removes it.  Not an error if it is not there.

        Workers go on, as they do after each stop: whoever uninstalls ends them, see `end_workers`.
        """
        # First, or runsvdir would start another runsv for it.
        self._service.unlink(missing_ok=True)
        if (self._definition / STATUS).exists():
            self._sv("-w", str(int(self._stop_seconds)), "force-shutdown", service=self._definition)
        shutil.rmtree(self._definition, ignore_errors=True)

    def _shows_start(self, token: RestartToken, seconds: float) -> bool:
        # Counted in polls, so that a clock that stands still cannot keep us here.
        for _ in range(int(seconds / self._poll_seconds)):
            if self.started_since(token):
                return True
            self._clock.wait(self._poll_seconds)
        return self.started_since(token)

    def _process(self, status: RunitStatus) -> ProcessIdentity | None:
        return identity_of(status.pid) if status.sign else None

    def _sv(self, *arguments: str, service: Path | None = None) -> str:
        """What sv said, on one line.  It says it on stdout, failures too."""
        done = self._runner.run(
            "sv", *arguments, str(service or self._service), timeout_seconds=self._stop_seconds + 10
        )
        return " ".join(f"{done.stdout} {done.stderr}".split())
