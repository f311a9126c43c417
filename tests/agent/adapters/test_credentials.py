"""Credential plugins: real programs that print, fail, hang and lie."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.credentials import Held, PluginCredential
from journeyman.errors import UnauthorizedError
from journeyman.model.access import Access, CredentialPlugin
from journeyman.model.meta import format_time
from tests.support.clock import START, FakeClock
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
V1, BETA = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


def printed(version: str = V1, **status: Any) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[..., PluginCredential]:
    """Makes a credential whose plugin is a sh script; each run of it leaves a line in `runs`."""

    def make(
        script: str, clock: FakeClock | None = None, seconds: float = 30, **given: Any
    ) -> PluginCredential:
        path = tmp_path / "plugin"
        path.write_text(f"#!/bin/sh\necho run >> '{tmp_path}/runs'\n{script}\n")
        path.chmod(0o755)
        wanted = CredentialPlugin(str(path), **{"api_version": V1, **given})
        return PluginCredential(
            Access("https://lab.example", tls_server_name="api.lab"), wanted, clock or FakeClock(), seconds
        )

    return make


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


@pytest.mark.parametrize("version", [V1, BETA])
def test_a_credential_is_kept_until_shortly_before_it_expires(
    plugin: Callable[..., PluginCredential], tmp_path: Path, version: str
) -> None:
    """Both versions are spoken; the plugin runs once for many requests, and again when time is nearly up."""
    clock = FakeClock()
    expires = format_time(START + timedelta(minutes=10))
    answer = printed(version, token="t", expirationTimestamp=expires)

    async def scenario() -> None:
        credential = plugin(f"echo '{answer}'", clock, api_version=version)
        together = await asyncio.gather(*(credential.headers() for _ in range(5)))
        assert together == [{"Authorization": "Bearer t"}] * 5
        clock.move(589)
        await credential.headers()
        assert runs(tmp_path) == 1
        clock.move(2)
        (tmp_path / "plugin").write_text(f"#!/bin/sh\necho '{printed(version, token='u')}'\n")
        assert await credential.headers() == {"Authorization": "Bearer u"}
        assert credential.held() == Held("u")

    asyncio.run(scenario())


def test_a_refused_credential_is_fetched_anew(
    plugin: Callable[..., PluginCredential], tmp_path: Path
) -> None:
    """One that the server refuses is forgotten, though it has not expired."""

    async def scenario() -> None:
        credential = plugin(f"echo '{printed(token='t')}'")
        await credential.headers()
        credential.forget()
        await credential.headers()

    asyncio.run(scenario())
    assert runs(tmp_path) == 2


def test_a_plugin_is_told_what_it_is_for(plugin: Callable[..., PluginCredential], tmp_path: Path) -> None:
    """Its environment has its own entries, and KUBERNETES_EXEC_INFO with the cluster where it wants that."""

    async def scenario() -> None:
        script = f"printf '%s' \"$KUBERNETES_EXEC_INFO\" > '{tmp_path}/asked'; echo '{printed(token='t')}'"
        credential = plugin(f'test "$A" = b && {script}', environ={"A": "b"}, wants_cluster=True)
        await credential.headers()

    asyncio.run(scenario())
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked["apiVersion"] == V1
    cluster = {"server": "https://lab.example", "tls-server-name": "api.lab"}
    assert asked["spec"] == {"interactive": False, "cluster": cluster}


def test_a_certificate_may_come_in_place_of_a_token(plugin: Callable[..., PluginCredential]) -> None:
    """A plugin may print a client certificate; then no token is sent."""

    async def scenario() -> None:
        credential = plugin(f"echo '{printed(clientCertificateData='C', clientKeyData='K')}'")
        assert await credential.headers() == {}
        assert credential.held().certificate == ("C", "K")

    asyncio.run(scenario())


PAST = format_time(START - timedelta(seconds=1))


@pytest.mark.parametrize(
    ("script", "says"),
    [
        pytest.param("echo no >&2; exit 3", "ended with 3: no", id="fails"),
        pytest.param("exit 1", "ended with 1: it said nothing", id="fails silently"),
        pytest.param("echo hello", "printed no JSON", id="no JSON"),
        pytest.param("echo '{}'", "printed no ExecCredential", id="no ExecCredential"),
        pytest.param(f"echo '{printed(BETA, token='t')}'", "answered in .*v1beta1, not in", id="version"),
        pytest.param(f"echo '{printed()}'", "neither a token nor a certificate", id="nothing"),
        pytest.param(
            f"echo '{printed(token='t', expirationTimestamp=PAST)}'", f"expired at {PAST}", id="expired"
        ),
        pytest.param(
            f"echo '{printed(token='t', expirationTimestamp='soon')}'", "the time 'soon'", id="no time"
        ),
    ],
)
def test_each_failure_of_a_plugin_has_its_sentence(
    plugin: Callable[..., PluginCredential], script: str, says: str
) -> None:
    """What a plugin does wrong is told with its name, and no header is made of it."""
    with pytest.raises(UnauthorizedError, match=says) as refused:
        asyncio.run(plugin(script).headers())
    assert "/plugin" in refused.value.message


def test_a_missing_plugin_is_told_with_the_hint_of_the_kubeconfig(tmp_path: Path) -> None:
    """A plugin that is not there is named, with how its maintainers say it is installed."""
    missing = CredentialPlugin(str(tmp_path / "none"), api_version=V1, hint="pip install none")
    credential = PluginCredential(Access("https://lab.example"), missing, FakeClock(), 30)
    with pytest.raises(UnauthorizedError, match="cannot be started: No such file") as refused:
        asyncio.run(credential.headers())
    assert refused.value.advice == "pip install none"


def test_a_plugin_that_hangs_is_ended_with_its_children(
    plugin: Callable[..., PluginCredential], tmp_path: Path
) -> None:
    """One that takes longer than it may is killed, and with it what it has started."""
    script = f"sleep 600 & echo $! > '{tmp_path}/child'; wait"

    async def scenario() -> None:
        with pytest.raises(UnauthorizedError, match="did not end within 1 s"):
            await plugin(script, seconds=1).headers()

    asyncio.run(scenario())
    child = int((tmp_path / "child").read_text())
    eventually(lambda: not _runs(child))


def _runs(pid: int) -> bool:
    """Whether it does; a zombie has ended, and waits for whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_slow_plugin_is_not_started_by_each_who_asks(
    plugin: Callable[..., PluginCredential], tmp_path: Path
) -> None:
    """A request that gives up leaves the plugin at work, and the next one gets what it prints."""
    gate = tmp_path / "gate"

    async def scenario() -> None:
        script = f"while ! test -e '{gate}'; do sleep 0.05; done; echo '{printed(token='t')}'"
        credential = plugin(script)
        impatient = asyncio.create_task(credential.headers())
        await asyncio.sleep(0)  # Lets it get as far as the start of the plugin.
        await asyncio.to_thread(eventually, (tmp_path / "runs").exists)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        gate.touch()
        assert await credential.headers() == {"Authorization": "Bearer t"}

    asyncio.run(scenario())
    assert runs(tmp_path) == 1
