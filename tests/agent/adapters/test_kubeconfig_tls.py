"""Kubeconfig against real TLS: who is let in, who is trusted, by which way."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import yaml

from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.node_file import NodeFileKeeper
from journeyman.adapters.system_clock import SystemClock
from journeyman.errors import ConfigError, UnreachableError
from journeyman.ports import Collection
from journeyman.settings import load_settings
from journeyman_updater.adapters.node_api import NodeApi
from journeyman_updater.contract import StateRoot
from tests.support.tls import Authority, Pair, connect_proxy, tls_server

NODE = Collection("foreman.llmkube.dev", "v1alpha1", "fleetnodes").named("mac-1")
CA = Authority()
ME = CA.issue("me")


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def data_of(pair: Pair) -> dict[str, str]:
    return {"client-certificate-data": b64(pair.certificate), "client-key-data": b64(pair.key)}


def kubeconfig(folder: Path, server: str, user: dict[str, Any], **cluster: Any) -> Path:
    """A kubeconfig of one context, whose CA is ours unless it says otherwise."""
    said = {"server": server, "certificate-authority-data": b64(CA.pem)} | cluster
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {key: value for key, value in said.items() if value}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def opened(path: Path, **flags: Any) -> HttpControlPlane:
    settings = load_settings(
        {"state_root": path.parent, "kubeconfig": path, "request_timeout_seconds": 20, **flags}, {}
    ).settings
    return HttpControlPlane(settings, SystemClock(), version="0", environ={})


async def asked(plane: HttpControlPlane) -> None:
    try:
        await plane.get(NODE)
    finally:
        await plane.aclose()


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


def files_of(folder: Path) -> dict[str, Any]:
    certificate, key = ME.save(folder, "me")
    return {"client-certificate": certificate.name, "client-key": key.name}


@pytest.mark.parametrize(
    ("user", "token", "certificate"),
    [
        pytest.param(lambda _: {"token": "t"}, "t", "", id="token"),
        pytest.param(lambda _: data_of(ME), "", "me", id="certificate data"),
        pytest.param(files_of, "", "me", id="certificate files"),
        pytest.param(lambda folder: files_of(folder) | {"token": "t"}, "t", "me", id="both"),
    ],
)
def test_each_credential_is_seen_by_the_server(
    tmp_path: Path, user: Callable[[Path], dict[str, Any]], token: str, certificate: str
) -> None:
    """What the kubeconfig holds is what the server sees, over TLS that is proven by the CA within it."""

    async def scenario() -> None:
        async with tls_server(CA, tmp_path, wants_certificate=bool(certificate)) as server:
            await asked(opened(kubeconfig(tmp_path, server.url, user(tmp_path))))
            assert server.seen == [{"token": token, "certificate": certificate}]

    run(scenario())


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """A token that was renewed beside the kubeconfig is sent with the next request."""
    (tmp_path / "token").write_text("one")

    async def scenario() -> None:
        async with tls_server(CA, tmp_path) as server:
            plane = opened(kubeconfig(tmp_path, server.url, {"tokenFile": "token"}))
            await plane.get(NODE)
            (tmp_path / "token").write_text("two")
            await asked(plane)
            assert [each["token"] for each in server.seen] == ["one", "two"]

    run(scenario())


@pytest.mark.slow
def test_a_certificate_of_a_plugin_is_shown_and_replaced(tmp_path: Path) -> None:
    """A plugin's certificate opens the door, and the next one it prints is shown on a new connection."""
    plugin = tmp_path / "plugin"
    version = "client.authentication.k8s.io/v1"

    def prints(pair: Pair) -> None:
        status = {"clientCertificateData": pair.certificate, "clientKeyData": pair.key}
        (tmp_path / "printed").write_text(
            json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
        )

    plugin.write_text(f"#!/bin/sh\nexec cat '{tmp_path}/printed'\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": version, "command": "./plugin"}}

    async def scenario() -> None:
        async with tls_server(CA, tmp_path, wants_certificate=True) as server:
            plane = opened(kubeconfig(tmp_path, server.url, user))
            prints(CA.issue("first"))
            await plane.get(NODE)
            prints(CA.issue("second"))
            plane._credential.forget()
            await asked(plane)
            assert [each["certificate"] for each in server.seen] == ["first", "second"]

    run(scenario())


def test_a_ca_of_somebody_else_is_not_trusted(tmp_path: Path) -> None:
    """Where another CA has signed the server's certificate nothing is sent, and the sentence says so."""

    async def scenario() -> None:
        async with tls_server(CA, tmp_path) as server:
            other = {"certificate-authority-data": b64(Authority("another").pem)}
            path = kubeconfig(tmp_path, server.url, {"token": "t"}, **other)
            with pytest.raises(UnreachableError, match="is not trusted: unable to get local") as refused:
                await asked(opened(path))
            assert "ca_file" in refused.value.advice
            assert server.seen == []

    run(scenario())


def test_an_unproven_server_is_reached_only_if_both_say_so(tmp_path: Path) -> None:
    """With insecure-skip-tls-verify in both places a stranger's certificate does."""
    unproven = {"certificate-authority-data": "", "insecure-skip-tls-verify": True}

    async def scenario() -> None:
        async with tls_server(Authority("unknown"), tmp_path) as server:
            path = kubeconfig(tmp_path, server.url, {"token": "t"}, **unproven)
            with pytest.raises(ConfigError, match="asks not to prove"):
                opened(path)
            await asked(opened(path, insecure_skip_tls_verify=True))
            assert server.seen == [{"token": "t", "certificate": ""}]

    run(scenario())


@pytest.mark.parametrize("proxied", [False, True])
def test_the_servers_name_may_be_another_than_the_urls(tmp_path: Path, *, proxied: bool) -> None:
    """`tls-server-name` is what the certificate must carry, through a proxy of `proxy-url`, too."""

    async def scenario() -> None:
        async with tls_server(CA, tmp_path, host="api.lab") as server, connect_proxy() as proxy:
            way = {"proxy-url": f"http://127.0.0.1:{proxy.port}"} if proxied else {}
            with pytest.raises(UnreachableError, match="is not trusted"):
                await asked(opened(kubeconfig(tmp_path, server.url, {"token": "t"}, **way)))
            path = kubeconfig(tmp_path, server.url, {"token": "t"}, **{"tls-server-name": "api.lab"} | way)
            await asked(opened(path))
            assert server.seen == [{"token": "t", "certificate": ""}]
            assert set(proxy.connects) == ({f"127.0.0.1:{server.port}"} if proxied else set())

    run(scenario())


def _mixed(folder: Path) -> dict[str, Any]:
    return files_of(folder) | {"client-key-data": b64(CA.issue("you").key)}


def _locked(folder: Path) -> dict[str, Any]:
    (folder / "me.key").mkdir()
    certificate, _ = ME.certificate, (folder / "me.crt").write_text(ME.certificate)
    assert certificate
    return {"client-certificate": "me.crt", "client-key": "me.key"}


@pytest.mark.parametrize(
    ("user", "says"),
    [
        pytest.param(_mixed, "the key is of another certificate", id="mixed"),
        pytest.param(_locked, "the client key .*me.key cannot be read: Is a directory", id="unreadable key"),
        pytest.param(
            lambda _: {"client-certificate": "none.crt", "client-key": "none.key"},
            "the client certificate .*none.crt cannot be read: No such file",
            id="missing",
        ),
        pytest.param(
            lambda _: {"client-certificate-data": b64("x"), "client-key-data": b64("y")},
            "cannot be used: ",
            id="no PEM",
        ),
        pytest.param(lambda _: {"tokenFile": "none"}, "the token file .* cannot be read", id="token file"),
    ],
)
def test_a_credential_that_cannot_be_used_is_told_at_the_start(
    tmp_path: Path, user: Callable[[Path], dict[str, Any]], says: str
) -> None:
    """Files that are missing, unreadable or do not belong together are named before anything is sent."""
    with pytest.raises(ConfigError, match=says):
        opened(kubeconfig(tmp_path, "https://192.0.2.10", user(tmp_path)))


@pytest.mark.parametrize("user", [{"token": "t"}, data_of(ME)], ids=["token", "certificate"])
def test_the_updater_is_told_what_a_kubeconfig_holds(tmp_path: Path, user: dict[str, Any]) -> None:
    """With node.json alone the updater gets in as the agent does; its files are 0600 and written once."""
    root = StateRoot(tmp_path / "root")
    root.path.mkdir()

    def updater_asks() -> None:
        assert NodeApi(root.node_file).is_reachable()

    async def scenario() -> None:
        async with tls_server(CA, tmp_path, host="api.lab", wants_certificate="token" not in user) as server:
            plane = opened(kubeconfig(tmp_path, server.url, user, **{"tls-server-name": "api.lab"}))
            keeper = NodeFileKeeper(root, "mac-1", plane.access)
            keeper.keep(plane.held())
            written = {path: path.stat().st_mtime_ns for path in root.credentials.iterdir()}
            keeper.keep(plane.held())
            assert written == {path: path.stat().st_mtime_ns for path in root.credentials.iterdir()}
            assert all(path.stat().st_mode & 0o777 == 0o600 for path in (*written, root.node_file))
            await asyncio.to_thread(updater_asks)
            assert server.seen == [
                {"token": user.get("token", ""), "certificate": "" if "token" in user else "me"}
            ]

    run(scenario())
