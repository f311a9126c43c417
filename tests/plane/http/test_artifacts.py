"""The artifact store, as whoever publishes and the updater see it."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from journeyman_updater.adapters.fetch_http import HttpFetcher
from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.adapters.http_source import SourceSettings
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract.node import NodeFile
from journeyman_updater.errors import Reason, SourceError
from journeyman_updater.model.release import Sha256
from tests.support.plane import RunningPlane, running_plane
from tests.support.waiting import eventually

PATH = "/artifacts/0.2.0/journeyman-0.2.0-linux-amd64.tar.gz"
BODY = bytes(range(256)) * 20_000
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RunningPlane]:
    """A plane with an empty store for each test."""
    with running_plane(tmp_path) as running:
        yield running


@pytest.fixture
def client(plane: RunningPlane) -> Iterator[httpx.Client]:
    """A client of that plane."""
    with plane.client() as opened:
        yield opened


def stored(plane: RunningPlane) -> list[str]:
    """All files of the store, temporary ones included."""
    folder = plane.data_dir / "artifacts"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_was_put_is_served_whole_and_in_ranges(client: httpx.Client) -> None:
    """PUT tells the digest, which is the ETag; ranges are served while it still names the same bytes."""
    put = client.put(PATH, content=BODY)
    assert (put.status_code, put.json()["sha256"], put.json()["size"]) == (201, SHA256, len(BODY))
    whole = client.get(PATH)
    assert (whole.status_code, whole.content) == (200, BODY)
    assert whole.headers["etag"] == f'"{SHA256}"'
    head = client.head(PATH)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(BODY))
    rest = {"Range": "bytes=1000-", "If-Range": whole.headers["etag"]}
    part = client.get(PATH, headers=rest)
    assert (part.status_code, part.content) == (206, BODY[1000:])
    assert part.headers["content-range"] == f"bytes 1000-{len(BODY) - 1}/{len(BODY)}"
    assert client.get(PATH, headers=rest | {"If-Range": '"other"'}).status_code == 200
    assert client.get(PATH, headers={"Range": f"bytes={len(BODY)}-"}).status_code == 416
    assert client.get(PATH, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304


def test_an_artifact_never_changes_and_a_signature_may(plane: RunningPlane, client: httpx.Client) -> None:
    """The same bytes again are fine, others are 409; a signature is replaced when it is made anew."""
    client.put(PATH, content=BODY).raise_for_status()
    assert client.put(PATH, content=BODY).status_code == 200
    refused = client.put(PATH, content=b"other")
    assert (refused.status_code, refused.json()["reason"]) == (409, "AlreadyExists")
    assert client.get(PATH).content == BODY
    assert client.put(f"{PATH}.minisig", content=b"first").status_code == 201
    assert client.put(f"{PATH}.minisig", content=b"second").status_code == 200
    assert client.get(f"{PATH}.minisig").content == b"second"
    name = PATH.removeprefix("/artifacts/")
    assert stored(plane) == [name, f"{name}.minisig"]


@pytest.mark.parametrize(
    "path",
    [
        "/artifacts/%2e%2e/plane.db",
        "/artifacts/0.2.0/%2e%2e",
        "/artifacts/0.2.0/.upload-x",
        "/artifacts/-x/name",
        "/artifacts/0.2.0/a b",
        f"/artifacts/{'1' * 129}/name",
    ],
)
def test_names_that_could_lead_out_are_refused(plane: RunningPlane, client: httpx.Client, path: str) -> None:
    """Dots in front, spaces and endless names are 400 for a PUT and a GET alike, and nothing is written."""
    for method in ("PUT", "GET"):
        # The path is sent as it is written, where httpx would shorten it.
        reply = client.request(method, httpx.URL(plane.url, raw_path=path.encode()), content=b"x")
        assert (reply.status_code, reply.json()["kind"]) == (400, "Status"), reply.text
    assert stored(plane) == []


def test_the_token_is_wanted_and_what_is_not_there_is_404(plane: RunningPlane, client: httpx.Client) -> None:
    """Nobody reads or writes artifacts without the token."""
    assert httpx.put(plane.url + PATH, content=BODY).status_code == 401
    assert httpx.get(plane.url + PATH).status_code == 401
    assert client.get(PATH).status_code == 404
    assert client.delete(PATH).status_code == 405


def test_a_file_that_is_too_large_leaves_nothing(tmp_path: Path) -> None:
    """Over the cap a PUT is 413, told while it streams, and no byte stays."""
    with running_plane(tmp_path, largest_artifact_bytes=1000) as plane, plane.client() as client:
        assert client.put(PATH, content=b"x" * 1001).status_code == 413
        assert stored(plane) == []
        assert client.put(PATH, content=b"x" * 1000).status_code == 201


def test_an_upload_that_breaks_off_leaves_nothing(plane: RunningPlane) -> None:
    """A client that goes away in the middle of its body has published nothing."""
    parts = urlsplit(plane.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
        head = f"PUT {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {plane.token}\r\n"
        connection.sendall(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY[: len(BODY) // 2])
        eventually(lambda: stored(plane))
    eventually(lambda: not stored(plane))


def test_a_killed_planes_uploads_are_cleared_away(tmp_path: Path) -> None:
    """What was coming in when the plane died is gone at its next start; what was stored is there."""
    folder = tmp_path / "plane" / "artifacts" / "0.2.0"
    folder.mkdir(parents=True)
    (folder / ".upload-1").write_bytes(b"half")
    (folder / "whole").write_bytes(b"whole")
    with running_plane(tmp_path) as plane, plane.client() as client:
        assert stored(plane) == ["0.2.0/whole"]
        assert client.get("/artifacts/0.2.0/whole").content == b"whole"


def test_the_updater_resumes_from_the_store(
    plane: RunningPlane, client: httpx.Client, tmp_path: Path
) -> None:
    """A transfer that broke off costs only the rest, with the token and the ETag of the plane."""
    body = os.urandom(4 * 1024**2)
    client.put(PATH, content=body).raise_for_status()
    node = tmp_path / "node.json"
    node.write_bytes(NodeFile("node-a", plane.url, token_file=str(plane.token_file)).to_json())
    source = SourceSettings(node_file=node)
    fetcher = HttpFetcher(source, RealFileSystem(), SystemClock())
    target, seen = tmp_path / "artifact", list[int]()

    def broken(here: int, _total: int | None) -> None:
        seen.append(here)
        if len(seen) == 2:
            raise SourceError(Reason.STALLED, "the cable was pulled", at_once=False)

    url, sha256 = plane.url + PATH, Sha256(hashlib.sha256(body).hexdigest())
    with pytest.raises(SourceError):
        fetcher.fetch(url, target, expected_size=len(body), sha256=sha256, progress=broken)
    fetcher.fetch(
        url, target, expected_size=len(body), sha256=sha256, progress=lambda here, _: seen.append(here)
    )
    assert target.read_bytes() == body
    assert seen[1] < seen[2]
    assert seen == sorted(seen)
