"""The token in the file is renewed in time, over real HTTP, and the next request carries the new one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.token_file import TokenFile
from journeyman.errors import ControlPlaneError
from journeyman.loops.token_loop import TokenLoop
from journeyman.settings import Settings
from tests.support.account_tokens import made_token
from tests.support.clock import START, FakeClock
from tests.support.raw_http import RawServer, raw_server, reply

DAY = timedelta(days=1)
OLD = made_token("fleet", "journeyman-desk", START, START + DAY)
NEW = made_token("fleet", "journeyman-desk", START + DAY / 2, START + DAY * 2)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work

    asyncio.run(bounded())


def token_reply(token: str) -> bytes:
    return reply(json.dumps({"kind": "TokenRequest", "status": {"token": token}}).encode())


class Node:
    """A node whose token lies in a file, with a loop that looks when it is told to."""

    def __init__(self, server: RawServer, path: Path, token: str = OLD) -> None:
        path.write_text(token)
        path.chmod(0o600)
        self.clock = FakeClock()
        settings = Settings(state_root=path.parent, server=server.url, token_file=path)
        self.plane = HttpControlPlane(settings, self.clock, version="0")
        file = TokenFile(path)
        self.loop = TokenLoop(
            api=self.plane, clock=self.clock, read=file.read, write=file.write, interval_seconds=60
        )


def test_a_token_is_renewed_in_its_file(tmp_path: Path) -> None:
    """At four fifths of its life one request brings a new one, 0600, with which the next is made."""
    path = tmp_path / "token"

    async def scenario() -> None:
        async with raw_server(token_reply(NEW), reply(b"{}")) as server:
            node = Node(server, path)
            await node.loop.look()
            assert server.requests == []
            node.clock.move(DAY.total_seconds() * 0.8)
            await node.loop.look()
            await node.loop.look()
            assert server.requests[0].startswith(
                "POST /api/v1/namespaces/fleet/serviceaccounts/journeyman-desk/token HTTP/1.1\r\n"
            )
            assert server.header("authorization", 0) == f"Bearer {OLD}"
            assert path.read_text().strip() == NEW
            assert path.stat().st_mode & 0o777 == 0o600
            await node.plane.post("/version", {})
            assert server.header("authorization", 1) == f"Bearer {NEW}"
            await node.plane.aclose()

    run(scenario())


@pytest.mark.parametrize("token", ["", made_token("fleet", "a", START, START + DAY, sub="somebody")])
def test_an_answer_without_a_token_leaves_the_old_one(tmp_path: Path, token: str) -> None:
    """What is no token of a ServiceAccount never replaces one that is."""
    path = tmp_path / "token"

    async def scenario() -> None:
        async with raw_server(token_reply(token)) as server:
            node = Node(server, path)
            node.clock.move(DAY.total_seconds())
            with pytest.raises(ControlPlaneError, match="holds no token"):
                await node.loop.look()
            assert path.read_text() == OLD
            await node.plane.aclose()

    run(scenario())


def test_a_renewal_that_fails_is_tried_again(tmp_path: Path) -> None:
    """A refusal ends neither the loop nor the token, and is told; the next look tries again."""
    path = tmp_path / "token"

    async def scenario() -> None:
        async with raw_server(reply(b"no", status="503 Service Unavailable"), token_reply(NEW)) as server:
            node = Node(server, path)
            node.clock.move(DAY.total_seconds() * 0.9)
            running = asyncio.create_task(node.loop.run())
            async with asyncio.timeout(15):
                while not node.loop.problem:
                    await node.clock.settle()
                assert [(each.status.value, each.reason) for each in node.loop.told()] == [
                    ("True", "NotRenewed")
                ]
                while path.read_text().strip() != NEW:
                    await node.clock.run_for(60)
                await node.clock.settle()
                assert [each.status.value for each in node.loop.told()] == ["False"]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await node.plane.aclose()

    run(scenario())


def test_another_token_is_left_alone(tmp_path: Path) -> None:
    """The credential of a plane's node, and a file that is gone, cause no request."""
    path = tmp_path / "token"

    async def scenario() -> None:
        async with raw_server() as server:
            node = Node(server, path, token="node.desk.secret")
            await node.loop.look()
            path.unlink()
            await node.loop.look()
            assert server.requests == []
            assert node.loop.told() == ()

    run(scenario())
