"""The certificate in the file is renewed in time, over real TLS; the old one is good until the new one is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.client_certificate import CertificateFile, X509Certificates, split
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.core.certificate_request import GROUP, user_of
from journeyman.credentials import renewal_of
from journeyman.errors import (
    CertificateError,
    ControlPlaneError,
    DeniedError,
    HostError,
    PendingError,
    UnreachableError,
)
from journeyman.loops.certificate_loop import CertificateLoop
from journeyman.settings import Settings
from journeyman_updater.contract import StateRoot
from tests.support.clock import FakeClock
from tests.support.signing_server import JsonObject, SigningServer, approve, issue, request_in, signing_server
from tests.support.tls import Authority

CA = Authority()
LIFE = timedelta(hours=1)
ME = user_of("desk")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SigningServer]:
    with signing_server(CA, tmp_path) as running:
        yield running


def signed(authority: Authority = CA, **said: Any) -> Callable[[JsonObject], None]:
    """Approves a request at the first look at it, and signs."""

    def looked(found: JsonObject) -> None:
        if not found["status"]:
            approve(found)
            issue(found, authority.sign(request_in(found), **{"life": LIFE, **said}))

    return looked


class NoticingClock(FakeClock):
    """Says when somebody has gone to sleep: the loop, after its look."""

    def __init__(self) -> None:
        super().__init__(datetime.now(UTC))
        self.asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.asleep.set()
        await super().sleep(seconds)


class Node:
    """A node with a certificate of an hour, and a loop that looks when it is told to."""

    def __init__(self, server: SigningServer, folder: Path) -> None:
        self.root = StateRoot(folder / "root")
        self.root.agent.mkdir(parents=True)
        self.ages(0.85)
        self.settings = Settings(
            state_root=self.root.path,
            server=server.url,
            ca_file=server.ca_file,
            certificate_file=self.root.certificate_file,
            request_timeout_seconds=20,
        )
        self.clock = NoticingClock()
        self.plane = HttpControlPlane(self.settings, self.clock, version="0")
        self.loop = self.new_loop()

    def ages(self, part: float) -> None:
        """Gives it a certificate of which that part of its life is over."""
        made = X509Certificates().new_request(ME, GROUP)
        since = datetime.now(UTC) - LIFE * part
        CertificateFile(self.root.certificate_file).write(
            CA.sign(made.request, life=LIFE, since=since), made.key
        )
        self.given = self.root.certificate_file.read_text()

    def new_loop(self) -> CertificateLoop:
        """As after a restart of the agent."""
        loop = renewal_of(self.settings, self.plane, self.clock, "desk")
        assert isinstance(loop, CertificateLoop)
        return loop

    @property
    def is_renewed(self) -> bool:
        return self.root.certificate_file.read_text() != self.given

    async def told(self) -> tuple[str, str, str]:
        """What is told after one look of the running loop."""
        running = asyncio.create_task(self.loop.run())
        self.clock.asleep.clear()
        await self.clock.asleep.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        (one,) = self.loop.told()
        return one.status.value, one.reason, one.message


def on_node(server: SigningServer, folder: Path, work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    """Runs that with a node, in bounded time."""

    async def bounded() -> None:
        node = Node(server, folder)
        try:
            async with asyncio.timeout(30):
                await work(node)
        finally:
            await node.plane.aclose()

    asyncio.run(bounded())


def test_it_is_renewed_when_it_is_due(server: SigningServer, tmp_path: Path) -> None:
    """Before its time nothing is asked; then the present one asks, and another key takes its place, 0600."""

    async def scenario(node: Node) -> None:
        server.requests.looked = signed()
        node.ages(0.65)
        await node.loop.look()
        assert server.requests.seen == []
        node.ages(0.85)
        with pytest.raises(PendingError, match="is not approved") as pending:
            await node.loop.look()
        assert "kubectl certificate approve journeyman-desk-" in pending.value.advice
        assert not node.is_renewed
        await node.loop.look()
        assert node.is_renewed
        assert server.requests.only()["spec"]["username"] == ME
        assert node.root.certificate_file.stat().st_mode & 0o777 == 0o600
        assert split(node.given)[1] != split(node.root.certificate_file.read_text())[1]
        assert not node.root.certificate_request.exists()
        asked = len(server.requests.seen)
        await node.loop.look()
        assert len(server.requests.seen) == asked

    on_node(server, tmp_path, scenario)


def test_a_restart_goes_on_with_the_same_request(server: SigningServer, tmp_path: Path) -> None:
    """An agent that starts anew while an approval is awaited makes no second key."""

    async def scenario(node: Node) -> None:
        with pytest.raises(PendingError):
            await node.loop.look()
        server.requests.looked = signed()
        await node.new_loop().look()
        assert node.is_renewed
        assert len(server.requests.objects) == 1

    on_node(server, tmp_path, scenario)


def test_a_new_one_that_opens_no_door_replaces_nothing(server: SigningServer, tmp_path: Path) -> None:
    """Signed by a CA that the server does not know, it is kept beside the old one until it is proven."""

    async def scenario(node: Node) -> None:
        server.requests.looked = signed(Authority("a stranger"))
        with pytest.raises(PendingError):
            await node.loop.look()
        with pytest.raises(UnreachableError):
            await node.loop.look()
        assert not node.is_renewed
        status, reason, _ = await node.told()
        assert (status, reason) == ("True", "NotRenewed")
        # The old one still opens it.
        assert server.requests.seen[-1][2] == ME

    on_node(server, tmp_path, scenario)


@pytest.mark.parametrize(
    ("kind", "error", "reason"),
    [("Denied", DeniedError, "Denied"), ("Failed", CertificateError, "SignerFailed")],
)
def test_a_refusal_is_told_until_it_is_taken_back(
    server: SigningServer, tmp_path: Path, kind: str, error: type[ControlPlaneError], reason: str
) -> None:
    """The condition says who refused and why; once the request is deleted it is made anew."""

    async def scenario(node: Node) -> None:
        server.requests.looked = lambda found: approve(found, kind, message="not now")
        with pytest.raises(PendingError):
            await node.loop.look()
        with pytest.raises(error):
            await node.loop.look()
        status, found, message = await node.told()
        assert (status, found) == ("True", reason)
        assert "not now" in message
        assert "kubectl delete csr" in message
        assert node.loop.problem
        server.requests.objects.clear()
        server.requests.looked = signed()
        assert (await node.told())[1] == "AwaitingApproval"
        assert (await node.told())[:2] == ("False", "Renewable")
        assert node.is_renewed
        assert node.loop.problem == ""

    on_node(server, tmp_path, scenario)


@pytest.mark.parametrize(
    "said",
    [{"public_key_of": CA.issue("x").certificate}, {"as_user": "journeyman:node:attic"}],
    ids=["another key", "another name"],
)
def test_what_is_of_no_use_replaces_nothing(
    server: SigningServer, tmp_path: Path, said: dict[str, Any]
) -> None:
    """A certificate of another key or for another name leaves the old one in force."""

    async def scenario(node: Node) -> None:
        server.requests.looked = signed(**said)
        with pytest.raises(PendingError):
            await node.loop.look()
        with pytest.raises(CertificateError):
            await node.loop.look()
        assert not node.is_renewed

    on_node(server, tmp_path, scenario)


def test_what_a_swap_has_left_is_not_taken_for_the_next(server: SigningServer, tmp_path: Path) -> None:
    """Killed after the swap, before the key was forgotten: due again, another key is made; else it goes."""

    async def scenario(node: Node) -> None:
        server.requests.looked = signed(since=datetime.now(UTC) - LIFE * 0.85)
        with pytest.raises(PendingError):
            await node.loop.look()
        left = node.root.certificate_request.read_bytes()
        await node.loop.look()
        assert node.is_renewed
        node.root.certificate_request.write_bytes(left)
        server.requests.looked = signed()
        with pytest.raises(PendingError):
            await node.loop.look()
        await node.loop.look()
        assert len(server.requests.objects) == 2
        node.root.certificate_request.write_bytes(left)
        await node.loop.look()
        assert not node.root.certificate_request.exists()

    on_node(server, tmp_path, scenario)


def test_an_unreadable_file_is_said(server: SigningServer, tmp_path: Path) -> None:
    """A file that holds no certificate any more ends nothing, and the condition says what to do."""

    async def scenario(node: Node) -> None:
        node.root.certificate_file.write_text("")
        with pytest.raises(HostError, match="holds none"):
            await node.loop.look()
        status, reason, message = await node.told()
        assert (status, reason) == ("True", "NotKept")
        assert "--csr" in message

    on_node(server, tmp_path, scenario)
