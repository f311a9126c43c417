"""`journeyman release` against a real plane."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from journeyman.cli import root as cli
from journeyman.errors import ConfigError, ConflictError, InvalidError, NotFoundError, UsageError
from journeyman_updater.adapters.host_facts import this_host
from journeyman_updater.adapters.minisign import MinisignVerifier
from journeyman_updater.adapters.minisign_keys import SecretKey
from tests.simulator.releases import SPEAKING, SmallRelease
from tests.support.plane import FOREMAN, PlaneProcess, spawn_plane

pytestmark = pytest.mark.slow

HOST = this_host()
FILE = f"journeyman-0.2.0-{HOST.os}-{HOST.arch}.tar.gz"
NAME = "foreman-agent-0.2.0"
RELEASE = f"{FOREMAN}/agentreleases/{NAME}"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[PlaneProcess]:
    """The embedded plane of the state root `tmp_path`."""
    with spawn_plane(tmp_path) as running:
        yield running


@pytest.fixture
def client(plane: PlaneProcess) -> Iterator[httpx.Client]:
    with plane.client() as opened:
        yield opened


def run(plane: PlaneProcess, *words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["release", *map(str, words), "--state-root", str(plane.data_dir.parent)])


def shown(plane: PlaneProcess, *words: str | Path) -> Any:
    result = run(plane, *words, "--json")
    assert result.exception is None, result.output
    return json.loads(result.output)


def test_publish_signs_uploads_and_creates_the_release(
    plane: PlaneProcess, client: httpx.Client, tmp_path: Path
) -> None:
    """What a node is told leads it to bytes that the plane's key has signed; approval is a person's."""
    artifact = SmallRelease().build(tmp_path / "made")
    options = ("--concurrency", "2", "--selector", "site=berlin", "--min-healthy-seconds", "5")
    result = run(plane, "publish", artifact, *options)
    assert result.exception is None, result.output
    assert f"journeyman release approve {NAME}" in result.output

    spec = client.get(RELEASE).json()["spec"]
    [found] = spec["artifacts"]
    assert (spec["version"], spec["approved"], spec["concurrency"]) == ("0.2.0", False, 2)
    assert spec["selector"]["matchLabels"] == {"journeyman.dev/agent": "true", "site": "berlin"}
    assert spec["healthGate"] == {"minHealthySeconds": 5, "timeoutSeconds": 600}
    assert found["url"] == f"{plane.url}/artifacts/0.2.0/{FILE}"
    assert client.get(found["url"]).content == artifact.read_bytes()
    signature = client.get(found["url"] + ".minisig").content
    key = (plane.data_dir / "release.pub").read_text()
    assert MinisignVerifier().verify(artifact, signature, (key,), datetime.now(UTC)).sha256 == found["sha256"]


def test_publish_can_be_repeated_and_never_changes_a_version(
    plane: PlaneProcess, client: httpx.Client, tmp_path: Path
) -> None:
    """The same bytes again are done already; other bytes under the version are refused, and not uploaded."""
    artifact = SmallRelease().build(tmp_path / "made")
    first = shown(plane, "publish", artifact)
    assert shown(plane, "publish", artifact)["metadata"]["uid"] == first["metadata"]["uid"]
    other = run(plane, "publish", SmallRelease(filler=b"y").build(tmp_path / "other"))
    assert isinstance(other.exception, ConflictError)
    assert client.get(f"/artifacts/0.2.0/{FILE}").content == artifact.read_bytes()
    assert client.get(RELEASE).json()["spec"] == first["spec"]


def test_each_platform_is_added_to_the_release_of_its_version(plane: PlaneProcess, tmp_path: Path) -> None:
    """A second platform extends the release, which can be approved with the last one."""
    shown(plane, "publish", SmallRelease().build(tmp_path / "one"))
    elsewhere = "arm64" if HOST.arch == "amd64" else "amd64"
    release = shown(plane, "publish", SmallRelease(arch=elsewhere).build(tmp_path / "two"), "--approve")
    assert [item["arch"] for item in release["spec"]["artifacts"]] == [HOST.arch, elsewhere]
    assert release["spec"]["approved"]


@pytest.mark.parametrize(
    ("release", "reason"),
    [
        (SmallRelease(program=SPEAKING.format(product="journeyman", version="9.9.9")), "VersionMismatch"),
        (SmallRelease(product="other"), "WrongProduct"),
    ],
)
def test_what_nodes_would_refuse_is_not_uploaded(
    plane: PlaneProcess, client: httpx.Client, release: SmallRelease, reason: str, tmp_path: Path
) -> None:
    """The refusal names the reason that a node would have given."""
    result = run(plane, "publish", release.build(tmp_path / "made"))
    assert isinstance(result.exception, InvalidError)
    assert reason in result.exception.message
    assert not list((plane.data_dir / "artifacts").glob("*/*"))
    assert client.get(RELEASE).status_code == 404


def test_another_key_and_another_url_can_be_named(
    plane: PlaneProcess, client: httpx.Client, tmp_path: Path
) -> None:
    """`--key` signs anew whatever lies beside the artifact; `--url-base` is what nodes are told."""
    key, artifact = SecretKey.generate(), SmallRelease().build(tmp_path / "made")
    (tmp_path / "key").write_text(key.to_file())
    shown(plane, "publish", artifact)
    options = ("--key", tmp_path / "key", "--sequence", "9")
    shown(plane, "publish", artifact, *options)
    signature = client.get(f"/artifacts/0.2.0/{FILE}.minisig").content
    found = MinisignVerifier().verify(artifact, signature, (key.public.to_line(),), datetime.now(UTC))
    assert found.sequence == 9
    other = SmallRelease(version="0.3.0", program=SPEAKING.format(product="journeyman", version="0.3.0"))
    release = shown(
        plane, "publish", other.build(tmp_path / "next"), "--url-base", "https://desk.local:6480/"
    )
    assert release["spec"]["artifacts"][0]["url"].startswith("https://desk.local:6480/artifacts/0.3.0/")


def test_without_a_key_it_says_what_to_do(plane: PlaneProcess, tmp_path: Path) -> None:
    """From another host than the plane's an unsigned artifact is refused before anything is asked."""
    artifact = SmallRelease().build(tmp_path / "made")
    words = ["release", "publish", str(artifact), "--state-root", str(tmp_path / "elsewhere")]
    words += ["--server", plane.url, "--token-file", str(plane.data_dir / "admin.token")]
    result = CliRunner().invoke(cli, words)
    assert isinstance(result.exception, ConfigError)
    assert "--key" in result.exception.advice


class NothingHere(BaseHTTPRequestHandler):
    """A control plane that has no releases yet, and no such path as that of artifacts."""

    def do_GET(self) -> None:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": "NotFound",
            "code": 404,
        }
        self._refuse(json.dumps(status).encode())

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._refuse(b"404 page not found")

    def _refuse(self, body: bytes) -> None:
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # As above.
        """Says nothing."""


def test_a_control_plane_without_an_artifact_store_is_explained(tmp_path: Path) -> None:
    """On a real cluster artifacts are hosted elsewhere, and the error says where that is shown."""
    artifact = SmallRelease().build(tmp_path / "made")
    (tmp_path / "key").write_text(SecretKey.generate().to_file())
    with ThreadingHTTPServer(("127.0.0.1", 0), NothingHere) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        words = ["release", "publish", str(artifact), "--key", str(tmp_path / "key")]
        words += [
            "--server",
            f"http://127.0.0.1:{server.server_port}",
            "--state-root",
            str(tmp_path / "root"),
        ]
        result = CliRunner().invoke(cli, words)
        server.shutdown()
        thread.join()
    assert isinstance(result.exception, ConfigError), result.exception
    assert "docs/releases.md" in result.exception.advice


def test_a_rollout_is_steered_and_shown(plane: PlaneProcess, client: httpx.Client, tmp_path: Path) -> None:
    """Approve, pause and resume change the one field each; list and show say what follows."""
    shown(plane, "publish", SmallRelease().build(tmp_path / "made"))
    for verb, field, value in (
        ("approve", "approved", True),
        ("pause", "paused", True),
        ("resume", "paused", False),
    ):
        assert shown(plane, verb, NAME)["spec"][field] is value
        assert client.get(RELEASE).json()["spec"][field] is value
    assert NAME in run(plane, "list").output
    assert [item["metadata"]["name"] for item in shown(plane, "list")] == [NAME]
    assert "journeyman release resume" in run(plane, "pause", NAME).output
    assert "Paused" in run(plane, "show", NAME).output


def test_bad_input_is_explained(plane: PlaneProcess, tmp_path: Path) -> None:
    """A selector without a value, and a release that does not exist."""
    artifact = SmallRelease().build(tmp_path / "made")
    assert isinstance(run(plane, "publish", artifact, "--selector", "x").exception, UsageError)
    assert isinstance(run(plane, "approve", "nothing").exception, NotFoundError)
