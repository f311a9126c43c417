"""Artifacts come whole and verified, or with a reason; bytes are not fetched twice."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman_updater.adapters.fetch_http import HttpFetcher
from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.adapters.http_source import SourceSettings
from journeyman_updater.contract.http_rules import RetryPolicy
from journeyman_updater.contract.node import NodeFile
from journeyman_updater.errors import HostError, Reason, SourceError, UntrustedError, UpdaterError
from journeyman_updater.model.release import Sha256
from tests.simulator import release_server as server_faults
from tests.simulator.release_server import Fault, ReleaseServer, self_signed

BODY = random.Random(7).randbytes(600_000)
SHA256 = Sha256(hashlib.sha256(BODY).hexdigest())
QUICK = SourceSettings(stall_seconds=0.5, connect_seconds=5, most_bytes=2_000_000, retry=RetryPolicy(3))


class Pauses:
    """A clock on which waiting takes no time and is remembered."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def now(self) -> datetime:
        return datetime(2027, 1, 1, tzinfo=UTC)

    def monotonic_ns(self) -> int:
        return 0

    def boot_id(self) -> str:
        return "boot"

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


@pytest.fixture
def server() -> Iterator[ReleaseServer]:
    with ReleaseServer() as running:
        yield running


@pytest.fixture
def clock() -> Pauses:
    return Pauses()


def fetch(
    url: str,
    folder: Path,
    clock: Pauses,
    *,
    size: int | None = len(BODY),
    settings: SourceSettings = QUICK,
    sha256: Sha256 = SHA256,
) -> Path:
    destination = folder / "artifact"
    seen: list[tuple[int, int | None]] = []
    HttpFetcher(settings, RealFileSystem(), clock, fraction=lambda: 1.0).fetch(
        url,
        destination,
        expected_size=size,
        sha256=sha256,
        progress=lambda here, total: seen.append((here, total)),
    )
    assert seen[-1][0] == destination.stat().st_size
    return destination


@pytest.mark.parametrize("size", [len(BODY), None])
def test_an_artifact_comes_whole(
    size: int | None, server: ReleaseServer, clock: Pauses, tmp_path: Path
) -> None:
    """The artifact lies at its place, and nothing else lies beside it."""
    fetched = fetch(server.publish("/a", BODY), tmp_path, clock, size=size)
    assert fetched.read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_what_is_here_is_not_fetched(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A file with the right digest costs no request at all."""
    (tmp_path / "artifact").write_bytes(BODY)
    fetch(server.publish("/a", BODY), tmp_path, clock)
    assert server.requested == []


def test_a_wrong_file_is_replaced(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A file with another digest is deleted and fetched."""
    (tmp_path / "artifact").write_bytes(b"rotten")
    assert fetch(server.publish("/a", BODY), tmp_path, clock).read_bytes() == BODY


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ten_cuts_cost_no_byte_twice(seed: int, server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """Connections that die at ten random offsets cost at most 1.01 times the artifact."""
    offsets = random.Random(seed).sample(range(1, len(BODY)), 10)
    url = server.publish("/a", BODY, server_faults.cut_at(offsets))
    assert fetch(url, tmp_path, clock).read_bytes() == BODY
    assert len(server.requested) == 11
    assert server.sent_bytes["/a"] <= 1.01 * len(BODY)


def test_a_killed_updater_goes_on_where_it_was(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A part from an earlier run is completed, not fetched again."""
    url = server.publish("/a", BODY, server_faults.cut_once_then(400_000, server_faults.status(503)))
    with pytest.raises(SourceError):
        fetch(url, tmp_path, clock)
    fetch(server.publish("/a", BODY), tmp_path, clock)
    assert server.sent_bytes["/a"] == len(BODY)


def test_a_changed_artifact_starts_over(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """If-Range keeps two versions of one URL apart."""
    old = bytes(len(BODY))
    url = server.publish(
        "/a", old, server_faults.cut_once_then(1000, server_faults.status(503)), etag='"old"'
    )
    with pytest.raises(SourceError):
        fetch(url, tmp_path, clock)
    server.publish("/a", BODY, etag='"new"')
    assert fetch(url, tmp_path, clock).read_bytes() == BODY
    assert server.headers[-1]["if-range"] == '"old"'


def test_a_server_without_ranges_starts_over(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A 200 in place of a 206 replaces the part."""
    fault = server_faults.cut_once_then(1000, server_faults.range_unaware)
    assert fetch(server.publish("/a", BODY, fault), tmp_path, clock).read_bytes() == BODY


def test_a_weak_validator_is_not_resumed(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """Only a strong validator proves that two halves are of one file."""
    fault = server_faults.cut_once_then(1000, server_faults.honest)
    assert fetch(server.publish("/a", BODY, fault, etag='W/"1"'), tmp_path, clock).read_bytes() == BODY
    assert "range" not in server.headers[-1]


def test_another_range_is_not_taken(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A 206 that does not continue the part is dropped with it."""
    fault = server_faults.cut_once_then(
        1000, server_faults.in_turn(server_faults.wrong_range, server_faults.honest)
    )
    assert fetch(server.publish("/a", BODY, fault), tmp_path, clock).read_bytes() == BODY


def test_a_range_that_is_refused_starts_over(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A 416 drops the part, and the whole is fetched."""
    fault = server_faults.in_turn(
        server_faults.cut_at([1000]), server_faults.status(416), server_faults.honest
    )
    assert fetch(server.publish("/a", BODY, fault), tmp_path, clock).read_bytes() == BODY


def test_a_torn_part_costs_one_more_transfer(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A part whose bytes a power cut has zeroed is found out by the digest and fetched anew."""
    url = server.publish("/a", BODY, server_faults.cut_once_then(300_000, server_faults.status(503)))
    with pytest.raises(SourceError):
        fetch(url, tmp_path, clock)
    (tmp_path / "artifact.part").write_bytes(bytes(300_000))
    assert fetch(server.publish("/a", BODY), tmp_path, clock).read_bytes() == BODY


REFUSALS: dict[str, tuple[Fault, Reason]] = {
    "endless body": (server_faults.endless, Reason.TOO_LARGE),
    "lying length: more": (server_faults.length_lie(1000), Reason.LENGTH_MISMATCH),
    "lying length: less": (server_faults.length_lie(-1000), Reason.LENGTH_MISMATCH),
    "stalled": (server_faults.stall_at(1000), Reason.STALLED),
    "forbidden": (server_faults.status(403), Reason.HTTP_STATUS),
    "gone": (server_faults.status(410), Reason.HTTP_STATUS),
    "compressed by the transport": (server_faults.encoded, Reason.COMPRESSED),
    "redirect to http": (server_faults.status(302, Location="http://example.com/a"), Reason.SCHEME_DOWNGRADE),
    "redirect loop": (server_faults.status(302, Location="/a"), Reason.TOO_MANY_REDIRECTS),
    "redirect to a file": (server_faults.status(302, Location="file:///etc/passwd"), Reason.BAD_REQUEST),
}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_a_bad_server_is_refused_with_its_reason(
    fault: Fault, reason: Reason, server: ReleaseServer, clock: Pauses, tmp_path: Path
) -> None:
    """Each way in which a server misbehaves has its own code, and no artifact results."""
    url = server.publish("/a", BODY, fault)
    with pytest.raises(UpdaterError) as refused:
        fetch(url, tmp_path, clock)
    assert refused.value.reason is reason
    assert not (tmp_path / "artifact").exists()
    assert len(server.requested) <= 6


@pytest.mark.parametrize("size", [len(BODY), None])
def test_a_truncated_artifact_is_refused(
    size: int | None, server: ReleaseServer, clock: Pauses, tmp_path: Path
) -> None:
    """An artifact that was cut where it is published is refused, with and without a signed size."""
    with pytest.raises(UpdaterError) as refused:
        fetch(server.publish("/a", BODY[:-1]), tmp_path, clock, size=size)
    assert refused.value.reason is (Reason.LENGTH_MISMATCH if size else Reason.HASH_MISMATCH)


@pytest.mark.parametrize("size", [len(BODY), None])
def test_a_web_page_is_named(size: int | None, server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """HTML with status 200 is told from a wrong artifact, names the host, and may pass by itself."""
    with pytest.raises(SourceError, match=r"web page from 127\.0\.0\.1") as refused:
        fetch(server.publish("/a", b"\n<!DOCTYPE html><p>Log in"), tmp_path, clock, size=size)
    assert refused.value.reason is Reason.HTML_BODY
    assert refused.value.is_transient


@pytest.mark.parametrize("etag", ['"1"', 'W/"1"', ""])
def test_wrong_bytes_are_fetched_twice_and_never_again(
    etag: str, server: ReleaseServer, clock: Pauses, tmp_path: Path
) -> None:
    """A second transfer clears the way of suspicion; later runs take no byte and blame the server."""
    url = server.publish("/a", bytes(len(BODY)), etag=etag)
    for _ in range(3):
        with pytest.raises(SourceError) as refused:
            fetch(url, tmp_path, clock)
        assert refused.value.reason is Reason.HASH_MISMATCH
        assert not refused.value.rejects
    assert server.sent_bytes["/a"] == 2 * len(BODY)
    assert [path.name for path in tmp_path.iterdir()] == ["artifact.wrong.json"]


def test_noise_is_not_fetched_for_ever(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A server that gives other wrong bytes each time is given up after three transfers, for good."""
    url = server.publish("/a", BODY, server_faults.noise)
    for _ in range(2):
        with pytest.raises(SourceError) as refused:
            fetch(url, tmp_path, clock)
        assert refused.value.reason is Reason.HASH_MISMATCH
    assert server.sent_bytes["/a"] == 3 * len(BODY)


@pytest.mark.parametrize("path", ["/a", "/b"])
def test_a_mended_artifact_is_taken(path: str, server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """Wrong bytes are forgotten when the server says that they have changed, or when the URL is another."""
    with pytest.raises(SourceError):
        fetch(server.publish("/a", bytes(len(BODY))), tmp_path, clock)
    assert fetch(server.publish(path, BODY, etag='"2"'), tmp_path, clock).read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_an_unknown_size_is_capped(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """Where nobody has signed a size, the absolute cap holds before a byte is read."""
    with pytest.raises(UntrustedError) as refused:
        fetch(server.publish("/a", bytes(2_000_001)), tmp_path, clock, size=None)
    assert refused.value.reason is Reason.TOO_LARGE


def test_plain_http_is_for_loopback_and_named_hosts(clock: Pauses, tmp_path: Path) -> None:
    """An http origin elsewhere is refused before it is asked."""
    with pytest.raises(UntrustedError) as refused:
        fetch("http://example.com/a", tmp_path, clock)
    assert refused.value.reason is Reason.SCHEME_DOWNGRADE


def trusting_only(certificate: Path, folder: Path) -> SourceSettings:
    """Whose control plane, which is elsewhere, has that CA."""
    node = NodeFile("here", "https://plane.example", ca_file=str(certificate))
    (folder / "node.json").write_bytes(node.to_json())
    return SourceSettings(node_file=folder / "node.json")


@pytest.mark.slow
def test_tls_must_be_trusted(clock: Pauses, tmp_path: Path) -> None:
    """A self-signed certificate is refused, and taken once node.json names it as the control plane's CA."""
    certificate = self_signed(tmp_path)
    (tmp_path / "downloads").mkdir()
    with ReleaseServer(certificate) as server:
        url = server.publish("/a", BODY)
        with pytest.raises(SourceError) as refused:
            fetch(url, tmp_path / "downloads", clock)
        assert refused.value.reason is Reason.TLS_UNTRUSTED
        assert clock.waited == []
        trusting = trusting_only(certificate, tmp_path)
        assert fetch(url, tmp_path / "downloads", clock, settings=trusting).read_bytes() == BODY


@pytest.mark.slow
def test_a_certificate_of_the_future_accuses_the_clock(clock: Pauses, tmp_path: Path) -> None:
    """A certificate that is not valid yet is a wrong clock, which is the host's fault and passes."""
    certificate = self_signed(tmp_path, starts_in_days=10)
    with ReleaseServer(certificate) as server:
        url = server.publish("/a", BODY)
        with pytest.raises(HostError) as refused:
            fetch(url, tmp_path, clock, settings=trusting_only(certificate, tmp_path))
    assert refused.value.reason is Reason.CLOCK_WRONG


@pytest.mark.slow
def test_https_never_falls_back_to_http(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A redirect from https to http is refused even where http would be allowed."""
    certificate = self_signed(tmp_path)
    plain = server.publish("/a", BODY)
    with ReleaseServer(certificate) as secure:
        url = secure.publish("/a", b"", server_faults.status(302, Location=plain))
        with pytest.raises(UntrustedError) as refused:
            fetch(url, tmp_path, clock, settings=trusting_only(certificate, tmp_path))
    assert refused.value.reason is Reason.SCHEME_DOWNGRADE
    assert server.requested == []


def test_the_token_goes_to_the_control_plane_alone(
    server: ReleaseServer, clock: Pauses, tmp_path: Path
) -> None:
    """The control plane's artifact store gets the token of node.json; a redirect elsewhere does not."""
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "downloads").mkdir()
    with ReleaseServer() as plane:
        node = NodeFile("here", plane.url(""), token_file=str(tmp_path / "token"))
        (tmp_path / "node.json").write_bytes(node.to_json())
        url = plane.publish("/a", b"", server_faults.status(307, Location=server.publish("/b", BODY)))
        settings = SourceSettings(node_file=tmp_path / "node.json")
        fetch(url, tmp_path / "downloads", clock, settings=settings)
        assert plane.headers[0]["authorization"] == "Bearer secret"
    assert "authorization" not in server.headers[0]


def test_removed_credentials_are_no_crash(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """Where token and CA were removed, the server is asked without, and has the last word."""
    node = NodeFile("here", server.url(""), ca_file="/no/such/ca", token_file="/no/such/token")
    (tmp_path / "node.json").write_bytes(node.to_json())
    settings = SourceSettings(node_file=tmp_path / "node.json")
    assert fetch(server.publish("/a", BODY), tmp_path, clock, settings=settings).read_bytes() == BODY


@pytest.mark.parametrize("content", [None, b"{", b"[" * 50_000])
def test_a_host_that_has_not_joined_fetches_without(
    content: bytes | None, server: ReleaseServer, clock: Pauses, tmp_path: Path
) -> None:
    """A node.json that is missing or damaged does not stand in the way of a mending release."""
    if content is not None:
        (tmp_path / "node.json").write_bytes(content)
    settings = SourceSettings(node_file=tmp_path / "node.json")
    assert fetch(server.publish("/a", BODY), tmp_path, clock, settings=settings).read_bytes() == BODY


def test_urls_are_asked_for_as_they_are(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A plus stays a plus, an escape stays one, a space becomes one, and compression is declined."""
    server.publish("/v1.0+build/a%2Bb%20c", BODY)
    fetch(server.url("/v1.0+build/a%2Bb c?x=1+2"), tmp_path, clock)
    assert server.requested == ["/v1.0+build/a%2Bb%20c?x=1+2"]
    assert server.headers[0]["accept-encoding"] == "identity"


@pytest.mark.slow
def test_proxies_of_the_environment_are_used(
    server: ReleaseServer, clock: Pauses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts are reached through the proxy that the environment names, and loopback is not."""
    proxy = ReleaseServer()
    with proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url(""))
        proxy.publish("http://artifacts.example/a", BODY)
        settings = SourceSettings(plain_http_hosts=frozenset({"artifacts.example"}))
        fetch("http://artifacts.example/a", tmp_path, clock, settings=settings)
        assert proxy.requested == ["http://artifacts.example/a"]
        (tmp_path / "artifact").unlink()
        fetch(server.publish("/a", BODY), tmp_path, clock)
        assert len(proxy.requested) == 1


def test_pauses_grow_and_heed_retry_after(server: ReleaseServer, clock: Pauses, tmp_path: Path) -> None:
    """A busy server is asked again after what it says, and later at each failure."""
    busy = server_faults.status(503, Retry_After="7")
    fault = server_faults.in_turn(server_faults.status(500), busy, server_faults.honest)
    fetch(server.publish("/a", BODY, fault), tmp_path, clock)
    assert clock.waited == [1.0, 7.0]


def test_a_long_retry_after_is_left_to_the_next_run(
    server: ReleaseServer, clock: Pauses, tmp_path: Path
) -> None:
    """A server that asks for an hour is not waited for; the error carries the wish."""
    with pytest.raises(SourceError) as refused:
        fetch(server.publish("/a", BODY, server_faults.status(429, Retry_After="3600")), tmp_path, clock)
    assert refused.value.retry_after_seconds == 3600
    assert clock.waited == []


def test_nobody_answering_is_unreachable(clock: Pauses, tmp_path: Path) -> None:
    """A refused connection is tried again, and then is transient."""
    with ReleaseServer() as gone:
        url = gone.url("/a")
    with pytest.raises(SourceError) as refused:
        fetch(url, tmp_path, clock)
    assert refused.value.reason is Reason.UNREACHABLE
    assert clock.waited == [1.0, 2.0]


def test_small_files_come_into_memory(server: ReleaseServer, clock: Pauses) -> None:
    """A signature is fetched by the same rules, and refused when it is too long to be one."""
    fetcher = HttpFetcher(QUICK, RealFileSystem(), clock)
    assert fetcher.fetch_bytes(server.publish("/s", b"signed"), limit_bytes=6) == b"signed"
    with pytest.raises(UntrustedError) as refused:
        fetcher.fetch_bytes(server.publish("/s", b"signed!"), limit_bytes=6)
    assert refused.value.reason is Reason.TOO_LARGE
