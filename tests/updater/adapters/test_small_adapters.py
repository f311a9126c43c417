"""The lock, the leases, and the updater's own look at the control plane."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from journeyman_updater.adapters.flock import FlockLocks, end_holder, holder
from journeyman_updater.adapters.leases import ProcessLeases
from journeyman_updater.adapters.node_api import NodeApi
from journeyman_updater.contract import identity_of
from journeyman_updater.contract.node import NodeFile
from journeyman_updater.errors import HostError, Reason, RequestError, SourceError
from journeyman_updater.settings import Settings


def test_the_lock_is_held_by_one_and_given_back(tmp_path: Path) -> None:
    """A second holder is refused at once; a left-over lock file means nothing."""
    locks, path = FlockLocks(), tmp_path / "update.lock"
    path.touch()
    with locks.hold(path), pytest.raises(HostError, match="another run"), locks.hold(path):
        raise AssertionError("two hold the lock")
    with locks.hold(path):
        assert holder(path) == identity_of(os.getpid())
    assert holder(path) is None


@pytest.mark.slow
def test_the_lock_can_be_taken_from_another_but_not_from_oneself(tmp_path: Path) -> None:
    """Whoever holds the lock is named, and ends when it is told to; its lock is free then."""
    path = tmp_path / "update.lock"
    code = (
        "import sys; from pathlib import Path; from journeyman_updater.adapters.flock import FlockLocks\n"
        "with FlockLocks().hold(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(HostError, match=f"as process {other.pid}$"), FlockLocks().hold(path):
            raise AssertionError("two hold the lock")
        end_holder(path)
        assert other.wait(60) == -signal.SIGTERM
    with FlockLocks().hold(path):
        end_holder(path)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["argument", "environment"])
def test_a_process_keeps_its_version(tmp_path: Path, way: str) -> None:
    """A worker whose command line or environment names a version keeps it, until it ends."""
    folder = tmp_path / "versions" / "1.0.0-abcdef012345"
    words = [str(folder / "lib" / "x.py")] if way == "argument" else []
    environment = {"PYTHONPATH": f"{folder}/lib"} if way == "environment" else {}
    code = "import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
    worker = subprocess.Popen(
        [sys.executable, "-S", "-c", code, *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment},
    )  # fmt: skip
    leases = ProcessLeases(tmp_path / "versions")
    with worker:
        assert worker.stdout is not None
        worker.stdout.read(1)
        assert leases.in_use() == frozenset({folder.name})
        worker.communicate()
    assert leases.in_use() == frozenset()


class _Answers(http.server.BaseHTTPRequestHandler):
    status = 200
    body: Any = None
    conflicts = 0
    seen: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        type(self).seen.append((self.path, self.headers.get("Authorization")))
        self._answer(type(self).status)

    def do_PATCH(self) -> None:
        type(self).seen.append((self.path, self.rfile.read(int(self.headers["Content-Length"])).decode()))
        type(self).conflicts -= 1
        self._answer(HTTPStatus.OK if type(self).conflicts < 0 else HTTPStatus.CONFLICT)

    def _answer(self, status: int) -> None:
        data = json.dumps(type(self).body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Says nothing."""


@pytest.fixture
def answers() -> Iterator[tuple[type[_Answers], str]]:
    """A server whose answer a test sets, and its URL."""
    handler = type("Answers", (_Answers,), {"seen": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield handler, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def _api(folder: Path, url: str) -> NodeApi:
    (folder / "token").write_text("secret\n")
    path = folder / "node.json"
    path.write_bytes(NodeFile("desk", url, token_file=str(folder / "token")).to_json())
    return NodeApi(path, timeout_seconds=5)


@pytest.mark.slow
def test_the_own_request_is_asked_for_with_the_nodes_token(
    tmp_path: Path, answers: tuple[type[_Answers], str]
) -> None:
    """One GET of the own FleetNode, with the token from its file."""
    handler, url = answers
    wish = {"targetVersion": "v2.0.0", "url": "https://x.example/a", "sha256": "ab" * 32}
    handler.body = {"metadata": {"name": "desk"}, "status": {"updateRequest": wish}}
    request = _api(tmp_path, url).wanted()
    assert request is not None
    assert request.version.spelled == "v2.0.0"
    path = "/apis/foreman.llmkube.dev/v1alpha1/fleetnodes/desk"
    assert handler.seen == [(path, "Bearer secret")]


@pytest.mark.slow
@pytest.mark.parametrize(("conflicts", "patches"), [(0, 1), (2, 3), (99, 4)])
def test_a_word_is_said_again_when_others_wrote_first(
    tmp_path: Path, answers: tuple[type[_Answers], str], conflicts: int, patches: int
) -> None:
    """A node that somebody has written meanwhile is read anew, and written a few times at most."""
    handler, url = answers
    handler.body = {"metadata": {"name": "desk", "resourceVersion": "7"}, "status": {}}
    handler.conflicts = conflicts
    _api(tmp_path, url).tell((True, "Fetching", "0.2.0 is fetched"), datetime(2026, 6, 1, tzinfo=UTC))
    paths = [path.rpartition("/")[2] for path, _ in handler.seen]
    assert paths == ["desk", "status"] * patches


@pytest.mark.slow
def test_answers_that_are_no_node_are_told_apart(tmp_path: Path, answers: tuple[type[_Answers], str]) -> None:
    """No node is no request; a refusal is the way's fault, another body the request's; all are reachable."""
    handler, url = answers
    api = _api(tmp_path, url)
    handler.status, handler.body = HTTPStatus.NOT_FOUND, {}
    assert api.wanted() is None
    handler.status = HTTPStatus.FORBIDDEN
    with pytest.raises(SourceError) as caught:
        api.wanted()
    assert caught.value.reason is Reason.HTTP_STATUS
    assert api.is_reachable()
    handler.status, handler.body = HTTPStatus.OK, ["captive portal"]
    with pytest.raises(RequestError):
        api.wanted()


@pytest.mark.slow
def test_no_answer_is_unreachable(tmp_path: Path) -> None:
    """Nobody listens, or there is no node.json: not reachable, and no traceback."""
    api = _api(tmp_path, "http://127.0.0.1:9")
    assert not api.is_reachable()
    with pytest.raises(SourceError) as caught:
        api.wanted()
    assert caught.value.reason is Reason.UNREACHABLE
    assert not NodeApi(tmp_path / "gone").is_reachable()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ('{"soak_second": 1}', "did you mean soak_seconds"),
        ('{"soak_seconds": -1}', "number of seconds"),
        ('{"soak_seconds": true}', "number of seconds"),
        ('{"allow_unsigned": 1}', "true or false"),
        ('{"plain_http_hosts": "x"}', "list of texts"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    """A setting that is unknown or of the wrong kind is named, with the nearest name."""
    path = tmp_path / "updater.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        Settings.load(path)


def test_settings_are_read_and_the_rest_keep_their_defaults(tmp_path: Path) -> None:
    """The file holds only what differs."""
    path = tmp_path / "updater.json"
    assert Settings.load(path) == Settings()
    path.write_text('{"soak_seconds": 5, "plain_http_hosts": ["lan"]}')
    assert Settings.load(path) == Settings(soak_seconds=5.0, plain_http_hosts=("lan",))
