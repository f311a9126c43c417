"""As whom we speak: a token or a certificate in a file, a token of a kubeconfig, or what a plugin prints."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from journeyman.adapters.client_certificate import split
from journeyman.adapters.tls import Certificate
from journeyman.errors import ConfigError, UnauthorizedError
from journeyman.model.access import Access, CredentialPlugin
from journeyman.model.meta import parse_time
from journeyman.ports import Clock

# A credential that is about to expire would do so on the way.
EARLY = timedelta(seconds=10)


@dataclass(frozen=True)
class Held:
    """What is sent at this moment, for the updater, which can ask no plugin; empty for what a file holds."""

    token: str = field(default="", repr=False)
    certificate: Certificate | None = field(default=None, repr=False)


class Credential(Protocol):
    """What is sent with each request."""

    async def headers(self) -> dict[str, str]:
        """The Authorization header.  Raises UnauthorizedError where there is none to be had now."""
        ...

    def held(self) -> Held:
        """What came with the last headers; a certificate only if it is another one than the kubeconfig's."""
        ...

    def shown(self) -> Certificate | None:
        """The certificate to show now, if it may be another one than the kubeconfig's."""
        ...

    def forget(self) -> None:
        """The server refused it: get it anew even if it looks good."""
        ...


def credential_of(access: Access, clock: Clock, *, plugin_seconds: float) -> Credential:
    """The credential of an access.  Raises ConfigError if its file holds none."""
    if access.plugin is not None:
        return PluginCredential(access, access.plugin, clock, plugin_seconds)
    if access.token_file:
        return BearerToken(Path(access.token_file))
    if access.certificate_file and access.certificate_file == access.key_file:
        # One file is replaced as a whole; of two, one might be new already and the other not yet.
        return RenewedCertificate(Path(access.certificate_file))
    return FixedToken(access.token)


class FixedToken:
    """A token that does not change, or none."""

    def __init__(self, token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._held = Held(token)

    async def headers(self) -> dict[str, str]:
        return self._headers

    def held(self) -> Held:
        return self._held

    def shown(self) -> Certificate | None:
        return None

    def forget(self) -> None:
        """There is no other one."""


class _ChangingFile:
    """A small file that is read again whenever it has changed.

    Args:
        path: the file.
        what: it is, for messages.
        setting: its name.
    """

    def __init__(self, path: Path, what: str, setting: str) -> None:
        self._path = path
        self._what = f"the {what} {path}"
        self._setting = setting
        self._stamp: tuple[int, int, int] | None = None

    def forget(self) -> None:
        """Lets the next `changed` read it even if it looks unchanged."""
        self._stamp = None

    def changed(self) -> str | None:
        """Its text; None if it is what it was.  Raises ConfigError."""
        try:
            facts = self._path.stat()
            stamp = (facts.st_mtime_ns, facts.st_ino, facts.st_size)
            if stamp == self._stamp:
                return None
            text = self._path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{self._what} cannot be read: {error.strerror}",
                f"Set {self._setting} to a readable file.",
            ) from error
        except ValueError as error:
            raise ConfigError(f"{self._what} is no text") from error
        self._stamp = stamp
        return text


class RenewedCertificate:
    """The certificate with its key in one file, read again whenever the file has changed.

    Args:
        path: the file.

    Raises:
        ConfigError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._file = _ChangingFile(path, "client certificate", "certificate_file")
        self._pair: Certificate = "", ""
        self._read()

    async def headers(self) -> dict[str, str]:
        """None; the last good certificate is shown while somebody is replacing the file."""
        with suppress(ConfigError):
            self._read()
        return {}

    def held(self) -> Held:
        return Held()

    def shown(self) -> Certificate | None:
        return self._pair

    def forget(self) -> None:
        """The server refused it: read the file even if it looks unchanged."""
        self._file.forget()

    def _read(self) -> None:
        if (text := self._file.changed()) is not None:
            self._pair = split(text)


class BearerToken:
    """The token in a file, read again whenever the file has changed.

    Args:
        path: the file.

    Raises:
        ConfigError: the file cannot be read or holds no token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _ChangingFile(path, "token file", "token_file")
        self._token = ""
        self._read()

    async def headers(self) -> dict[str, str]:
        """The Authorization header; the last good token while somebody is replacing the file."""
        with suppress(ConfigError):
            self._read()
        return {"Authorization": f"Bearer {self._token}"}

    def held(self) -> Held:
        return Held()

    def shown(self) -> Certificate | None:
        return None

    def forget(self) -> None:
        """The server refused the token: read the file even if it looks unchanged."""
        self._file.forget()

    def _read(self) -> None:
        text = self._file.changed()
        if text is None:
            return
        token = text.strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            # It is looked at again with the next request, as somebody may be writing it.
            self._file.forget()
            raise ConfigError(
                f"the token file {self._path} does not hold one token", "It must be one line of ASCII."
            )
        self._token = token


class PluginCredential:
    """What a plugin prints, kept until it expires or is refused.

    Whoever asks first starts the plugin, and whoever asks meanwhile waits for the same run: one that takes
    longer than a request may is not started anew by each.

    Args:
        access: the cluster, of which a plugin may want to know.
        plugin: the program.
        clock: to read times of expiry against.
        seconds: how long the program may take.
    """

    def __init__(self, access: Access, plugin: CredentialPlugin, clock: Clock, seconds: float) -> None:
        self._access = access
        self._plugin = plugin
        self._clock = clock
        self._seconds = seconds
        self._held = Held()
        self._expires: datetime | None = None
        self._is_known = False
        self._running: asyncio.Task[None] | None = None

    async def headers(self) -> dict[str, str]:
        if not self._is_good():
            if self._running is None:
                self._running = asyncio.create_task(self._renew())
                self._running.add_done_callback(self._ended)
            await asyncio.shield(self._running)
        return {"Authorization": f"Bearer {self._held.token}"} if self._held.token else {}

    def held(self) -> Held:
        return self._held

    def shown(self) -> Certificate | None:
        return self._held.certificate

    def forget(self) -> None:
        self._is_known = False

    def _is_good(self) -> bool:
        return self._is_known and (self._expires is None or self._clock.now() + EARLY < self._expires)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # Those who waited have it; nobody may wait any more.

    async def _renew(self) -> None:
        status = self._status_of(await self._output())
        token, expires = status.get("token") or "", status.get("expirationTimestamp")
        pair = status.get("clientCertificateData"), status.get("clientKeyData")
        if not token and not all(pair):
            raise self._error("printed neither a token nor a certificate with its key")
        moment = None if expires is None else self._time(expires)
        if moment is not None and moment <= self._clock.now():
            raise self._error(f"printed a credential that expired at {expires}")
        self._expires, self._is_known = moment, True
        self._held = Held(str(token), (str(pair[0]), str(pair[1])) if all(pair) else None)

    async def _output(self) -> bytes:
        plugin = self._plugin
        environ = {**os.environ, **plugin.environ, "KUBERNETES_EXEC_INFO": json.dumps(self._question())}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.arguments,
                env=environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            hint = plugin.hint or "Install it, or use another credential."
            raise UnauthorizedError(
                f"the credential plugin {plugin.command} cannot be started: {error.strerror}", hint
            ) from error
        try:
            async with asyncio.timeout(self._seconds):
                output, said = await process.communicate()
        except TimeoutError as error:
            raise self._error(f"did not end within {self._seconds:g} s") from error
        finally:
            await _end(process)
        if process.returncode:
            last = said.decode(errors="replace").strip().rpartition("\n")[2][-200:]
            raise self._error(f"ended with {process.returncode}: {last or 'it said nothing'}")
        return output

    def _question(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.wants_cluster:
            spec["cluster"] = {"server": self._access.server}
            if self._access.tls_server_name:
                spec["cluster"]["tls-server-name"] = self._access.tls_server_name
        return {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}

    def _status_of(self, output: bytes) -> dict[str, Any]:
        try:
            found = json.loads(output)
        except ValueError as error:
            raise self._error("printed no JSON") from error
        match found:
            case {"kind": "ExecCredential", "apiVersion": str(version), "status": dict(status)}:
                if version != self._plugin.api_version:
                    raise self._error(f"answered in {version}, not in {self._plugin.api_version}")
                return status
        raise self._error("printed no ExecCredential with a status")

    def _time(self, text: object) -> datetime:
        try:
            return parse_time(str(text))
        except ValueError as error:
            raise self._error(f"printed the time {text!r}, which is none") from error

    def _error(self, what: str) -> UnauthorizedError:
        return UnauthorizedError(
            f"the credential plugin {self._plugin.command} {what}", "Run it by hand: it may want a login."
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends a plugin that still runs, with all that it has started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
