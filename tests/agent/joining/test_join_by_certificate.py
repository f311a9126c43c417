"""`journeyman join --csr` over real TLS: it waits, goes on where it was cut off, installs all or nothing."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from journeyman.errors import (
    CertificateError,
    ConfigError,
    ConflictError,
    DeniedError,
    PendingError,
    UnauthorizedError,
    UnreachableError,
)
from journeyman.joining import Joined, JoinRequest, join
from journeyman.joining.files import take_away
from journeyman.settings import load_settings
from journeyman_updater.adapters.node_api import NodeApi
from journeyman_updater.contract import StateRoot
from journeyman_updater.contract.node import NodeFile
from tests.support.signing_server import (
    BOOTSTRAP,
    JsonObject,
    SigningServer,
    approve,
    issue,
    request_in,
    signing_server,
)
from tests.support.tls import Authority

pytestmark = pytest.mark.slow
CA = Authority()
NODE_PATH = "/apis/foreman.llmkube.dev/v1alpha1/fleetnodes/desk"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SigningServer]:
    with signing_server(CA, tmp_path) as running:
        yield running


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    return StateRoot(tmp_path / "state root")


class Administrator:
    """Approves and signs at the look of that number; what it signs may be wrong."""

    def __init__(self, *, at_look: int = 2, **signed: Any) -> None:
        self.looks = 0
        self._at_look = at_look
        self._signed = signed

    def __call__(self, found: JsonObject) -> None:
        self.looks += 1
        if self.looks == self._at_look:
            approve(found)
            issue(found, CA.sign(request_in(found), **self._signed))


def joined(server: SigningServer, root: StateRoot, **given: Any) -> tuple[Joined, list[str]]:
    """What the command does, and what it says meanwhile."""
    token = root.path.parent / "bootstrap.token"
    token.write_text(given.pop("token", BOOTSTRAP))
    flags = {"state_root": root.path, "certificate_poll_seconds": 0.01, "request_timeout_seconds": 20}
    settings = load_settings(flags | given.pop("flags", {}), {}).settings
    given = {"ca_file": server.ca_file, "name": "desk", "wait_seconds": 20.0, **given}
    said: list[str] = []
    request = JoinRequest(settings, server.url, token, by_certificate=True, **given)
    return join(request, said.append), said


def key_kept(root: StateRoot) -> str:
    return str(json.loads(root.certificate_request.read_text())["key"])


def nothing_is_installed(root: StateRoot) -> bool:
    return not any(path.exists() for path in (root.certificate_file, root.node_file, root.config_file))


def test_a_join_asks_waits_and_installs(server: SigningServer, root: StateRoot) -> None:
    """The request is what the signer wants; then certificate and key lie there, 0600, and no token does."""
    server.requests.looked = Administrator()
    done, said = joined(server, root, flags={"certificate_life_seconds": 3600})
    found = server.requests.only()
    name = found["metadata"]["name"]
    assert (done.name, done.kind) == ("desk", "cluster")
    assert any(line.endswith(f"kubectl certificate approve {name}") for line in said)

    spec = found["spec"]
    assert spec["signerName"] == "kubernetes.io/kube-apiserver-client"
    assert spec["usages"] == ["digital signature", "client auth"]
    assert spec["expirationSeconds"] == 3600
    asked = x509.load_pem_x509_csr(request_in(found).encode())
    assert asked.subject.rfc4514_string() == "CN=journeyman:node:desk,O=journeyman:nodes"
    key = asked.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"

    assert root.certificate_file.stat().st_mode & 0o777 == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(root.certificate_file)
    settings = load_settings({"state_root": root.path}, {}).settings
    assert (settings.server, settings.node_name, settings.token_file) == (server.url, "desk", None)
    assert settings.certificate_file == root.certificate_file
    assert not root.token_file.exists()
    assert not root.certificate_request.exists()
    texts = [path.read_text() for path in root.path.rglob("*") if path.is_file()]
    assert not any(BOOTSTRAP in text for text in texts)
    assert "PRIVATE KEY" not in json.dumps(found)


def test_the_updater_gets_in_by_the_same_file(server: SigningServer, root: StateRoot) -> None:
    """node.json names the file with certificate and key, and the updater is known by it."""
    server.requests.looked = Administrator()
    joined(server, root)
    node = NodeFile.from_json(root.node_file.read_bytes())
    assert (node.certificate_file, node.key_file) == (str(root.certificate_file),) * 2
    assert NodeApi(root.node_file).is_reachable()
    assert server.requests.seen[-1] == ("GET", NODE_PATH, "journeyman:node:desk")


def test_a_join_that_was_too_early_goes_on(server: SigningServer, root: StateRoot) -> None:
    """Nobody approves in time: one sentence says what to run, and a repeated join takes the same request."""
    with pytest.raises(PendingError, match="nobody has approved") as late:
        joined(server, root, wait_seconds=0.05)
    name = server.requests.only()["metadata"]["name"]
    assert f"kubectl certificate approve {name}" in late.value.advice
    assert late.value.exit_code == 79
    assert root.certificate_request.stat().st_mode & 0o777 == 0o600
    assert nothing_is_installed(root)
    key = key_kept(root)

    server.requests.looked = Administrator(at_look=1)
    joined(server, root)
    assert server.requests.only()["metadata"]["name"] == name
    assert key in root.certificate_file.read_text()


def test_approved_and_not_signed_is_said_apart(server: SigningServer, root: StateRoot) -> None:
    """Where no signer runs an approval alone does not help, and the sentence says so."""
    with pytest.raises(PendingError, match="nobody has approved"):
        joined(server, root, wait_seconds=0.05)
    approve(server.requests.only())
    with pytest.raises(PendingError, match="is approved, but no signer"):
        joined(server, root, wait_seconds=0.05)


def test_a_lost_answer_costs_nothing(server: SigningServer, root: StateRoot) -> None:
    """The POST arrives and its answer does not: the repeated join finds the request that it has made."""
    server.requests.lost = 1
    with pytest.raises(UnreachableError):
        joined(server, root)
    name = server.requests.only()["metadata"]["name"]
    server.requests.looked = Administrator(at_look=1)
    joined(server, root)
    assert server.requests.only()["metadata"]["name"] == name


def test_trouble_on_the_way_is_waited_out(server: SigningServer, root: StateRoot) -> None:
    """A server that answers 503 and 429 for a while ends no join."""
    server.requests.looked = Administrator(at_look=1)
    server.requests.broken = [503, 429, 503]
    joined(server, root)
    assert root.certificate_file.exists()


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("Denied", DeniedError, r"was denied \(ByTest: not yours\)"),
        ("Failed", CertificateError, r"the signer could not sign .* \(ByTest: not yours\)"),
    ],
)
def test_a_refusal_is_told_and_can_be_undone(
    server: SigningServer, root: StateRoot, kind: str, error: type[Exception], says: str
) -> None:
    """Denied and Failed end the join with their reason; after `kubectl delete csr` the same key asks anew."""
    server.requests.looked = lambda found: approve(found, kind, message="not yours")
    with pytest.raises(error, match=says) as refused:
        joined(server, root)
    name = server.requests.only()["metadata"]["name"]
    assert f"kubectl delete csr {name}" in refused.value.advice  # type: ignore[attr-defined]
    assert nothing_is_installed(root)
    server.requests.objects.clear()
    server.requests.looked = Administrator(at_look=1)
    joined(server, root)
    assert server.requests.only()["metadata"]["name"] == name


def test_a_request_that_vanishes_is_made_anew(server: SigningServer, root: StateRoot) -> None:
    """Requests are collected after a day: the one that waits for an approval makes its own again."""
    administrator = Administrator(at_look=4)

    def looked(found: JsonObject) -> None:
        if administrator.looks == 1:
            server.requests.objects.clear()
        administrator(found)

    server.requests.looked = looked
    joined(server, root)
    assert [method for method, path, _ in server.requests.seen if "certif" in path].count("POST") == 2


@pytest.mark.parametrize(
    ("signed", "says"),
    [
        ({"public_key_of": CA.issue("other").certificate}, "is of another key"),
        ({"as_user": "journeyman:node:attic"}, "is for 'journeyman:node:attic', not for"),
        ({"since": datetime.now(UTC) - timedelta(days=3)}, "expired at"),
        ({"since": datetime.now(UTC) + timedelta(days=3)}, "is not good before"),
    ],
    ids=["another key", "another name", "expired", "of tomorrow"],
)
def test_a_certificate_of_no_use_is_refused(
    server: SigningServer, root: StateRoot, signed: dict[str, Any], says: str
) -> None:
    """A certificate for another key, another name or another time is never installed."""
    server.requests.looked = Administrator(at_look=1, **signed)
    with pytest.raises(CertificateError, match=says):
        joined(server, root)
    assert nothing_is_installed(root)


@pytest.mark.parametrize(
    "text", ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_garbage_in_place_of_a_certificate_is_refused(
    server: SigningServer, root: StateRoot, text: str
) -> None:
    """What is no certificate is never installed, whatever the signer calls it."""

    def looked(found: JsonObject) -> None:
        approve(found)
        issue(found, text or "\0")

    server.requests.looked = looked
    with pytest.raises(CertificateError, match="no certificate"):
        joined(server, root)
    assert nothing_is_installed(root)


def test_an_expired_answer_costs_a_new_key(server: SigningServer, root: StateRoot) -> None:
    """A request whose certificate has expired can issue no other one, so the repeated join makes another."""
    server.requests.looked = Administrator(at_look=1, since=datetime.now(UTC) - timedelta(days=3))
    with pytest.raises(CertificateError, match="expired"):
        joined(server, root)
    first = server.requests.only()["metadata"]["name"]
    server.requests.looked = Administrator(at_look=1)
    joined(server, root)
    assert len(server.requests.objects) == 2
    assert first in server.requests.objects


def test_a_certificate_that_opens_no_door_is_kept_for_the_next_try(
    server: SigningServer, root: StateRoot, tmp_path: Path
) -> None:
    """Where the server does not know the signer nothing is installed; later the same one is proven again."""
    stranger = Authority("another CA")

    def looked(found: JsonObject) -> None:
        approve(found)
        issue(found, stranger.sign(request_in(found)))

    server.requests.looked = looked
    with pytest.raises(UnreachableError):
        joined(server, root)
    assert nothing_is_installed(root)
    kept = json.loads(root.certificate_request.read_text())
    assert kept["certificate"]
    assert kept["server"] == server.url


def test_somebody_elses_request_is_not_taken_for_ours(server: SigningServer, root: StateRoot) -> None:
    """An object of our name with another content is an error, not an answer."""
    with pytest.raises(PendingError):
        joined(server, root, wait_seconds=0.05)
    found = server.requests.only()
    found["spec"]["request"] = "bm90IG91cnM="
    with pytest.raises(ConflictError, match="is not this machine's"):
        joined(server, root)


def test_a_token_that_expires_meanwhile_is_said(server: SigningServer, root: StateRoot) -> None:
    """With another token the same command goes on with the same request."""

    def looked(_: JsonObject) -> None:
        server.requests.tokens.clear()

    server.requests.looked = looked
    with pytest.raises(UnauthorizedError) as refused:
        joined(server, root)
    assert "Take a new token and repeat" in refused.value.advice
    server.requests.tokens.add("another")
    server.requests.looked = Administrator(at_look=1)
    joined(server, root, token="another")
    assert len(server.requests.objects) == 1


def test_another_node_makes_another_key(server: SigningServer, root: StateRoot) -> None:
    """What a try for one name has left is of no use under another name."""
    with pytest.raises(PendingError):
        joined(server, root, wait_seconds=0.05)
    key = key_kept(root)
    with pytest.raises(PendingError):
        joined(server, root, name="attic", wait_seconds=0.05)
    assert key_kept(root) != key


def test_a_second_join_replaces_the_credential_and_a_leave_takes_it(
    server: SigningServer, root: StateRoot
) -> None:
    """An expired node joins again under its name with a new key; what the join wrote can be taken away."""
    server.requests.looked = Administrator(at_look=1)
    joined(server, root)
    before = root.certificate_file.read_text()
    server.requests.looked = Administrator(at_look=1)
    joined(server, root)
    assert root.certificate_file.read_text() != before
    assert len(server.requests.objects) == 2
    removed = take_away(root)
    assert str(root.certificate_file) in removed
    assert nothing_is_installed(root)


def test_what_cannot_be_is_said_before_anything_is_asked(server: SigningServer, root: StateRoot) -> None:
    """A join token of a plane, and plain http, are refused with what to do."""
    with pytest.raises(ConfigError, match="join token of an embedded plane"):
        joined(server, root, token=f"join.0000000000.{'x' * 43}")
    settings = load_settings({"state_root": root.path}, {}).settings
    token = root.path.parent / "bootstrap.token"
    request = JoinRequest(settings, "http://127.0.0.1:1", token, by_certificate=True, name="desk")
    with pytest.raises(ConfigError, match="plain http"):
        join(request, lambda _: None)
    assert server.requests.seen == []
