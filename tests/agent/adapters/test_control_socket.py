"""The control socket, server and client together, on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from journeyman.adapters.control_socket import ControlSocket, check_peer, peer_uid
from journeyman.control import LONGEST_LINE_BYTES, call, socket_address
from journeyman.errors import ConfigError, HostError, JourneymanError
from journeyman.ports import JsonObject
from journeyman_updater.contract import StateRoot


async def echo(args: JsonObject) -> JsonObject:
    return {"echoed": args}


async def refuse(args: JsonObject) -> JsonObject:
    raise ConfigError("that cannot be set", "Set something else.")


async def fail(args: JsonObject) -> JsonObject:
    raise ZeroDivisionError("a bug")


VERBS = {"echo": echo, "refuse": refuse, "fail": fail}


def served(root: StateRoot, *, request_timeout_seconds: float = 5) -> ControlSocket:
    return ControlSocket(root, VERBS, request_timeout_seconds=request_timeout_seconds)


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


async def asked(root: StateRoot, verb: str, **args: Any) -> dict[str, Any]:
    """The blocking client, in a thread, as it lives in another process."""
    return await asyncio.to_thread(call, root, verb, **args)


async def raw(root: StateRoot, request: bytes) -> bytes:
    """What the server answers to these bytes."""
    reader, writer = await asyncio.open_unix_connection(str(root.control_socket))
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("folder", ["short", "a path with spaces", "x" * 90 + "/" + "y" * 90])
def test_a_verb_is_answered_wherever_the_state_root_lies(tmp_path: Path, folder: str) -> None:
    """Spaces are normal, and a path longer than sun_path is reached, too."""
    root = StateRoot(tmp_path / folder)

    async def scenario() -> None:
        async with served(root):
            assert await asked(root, "echo", count=1, name="ü\u2028") == {
                "echoed": {"count": 1, "name": "ü\u2028"}
            }
            assert stat.S_IMODE(root.control_socket.stat().st_mode) == 0o600
        assert not root.control_socket.exists()

    run(scenario())


def test_a_refusal_keeps_message_advice_and_exit_code(tmp_path: Path) -> None:
    """The command at the terminal ends as if it had failed itself."""

    async def scenario() -> None:
        async with served(StateRoot(tmp_path)):
            with pytest.raises(JourneymanError, match="that cannot be set") as caught:
                await asked(StateRoot(tmp_path), "refuse")
            assert (caught.value.advice, caught.value.exit_code) == ("Set something else.", 78)

    run(scenario())


def test_an_unknown_verb_names_those_there_are(tmp_path: Path) -> None:
    """A newer command meets an older agent with a clear answer."""

    async def scenario() -> None:
        async with served(StateRoot(tmp_path)):
            with pytest.raises(JourneymanError, match="does not know 'fly'") as caught:
                await asked(StateRoot(tmp_path), "fly")
            assert "echo, fail, refuse" in caught.value.advice
            assert caught.value.exit_code == 2

    run(scenario())


def test_a_bug_in_a_verb_is_logged_and_ends_that_request_only(tmp_path: Path) -> None:
    """The agent goes on, and the client learns where to look."""

    async def scenario() -> None:
        async with served(StateRoot(tmp_path)):
            with capture_logs() as logs, pytest.raises(JourneymanError, match="its log says why"):
                await asked(StateRoot(tmp_path), "fail")
            assert [entry["event"] for entry in logs] == ["control_request_failed"]
            assert await asked(StateRoot(tmp_path), "echo") == {"echoed": {}}

    run(scenario())


@pytest.mark.parametrize(
    "request_line", [b"hello\n", b"[]\n", b"{}\n", b'{"verb": "echo"}\n', b"\xff\n", b"[" * 9999 + b"\n"]
)
def test_what_is_no_request_is_refused(tmp_path: Path, request_line: bytes) -> None:
    """Garbage gets an error in the format of replies."""
    root = StateRoot(tmp_path)

    async def scenario() -> None:
        async with served(root):
            reply = json.loads(await raw(root, request_line))
            assert reply["error"]["exitCode"] == 2

    run(scenario())


@pytest.mark.slow
def test_a_client_that_says_too_much_or_nothing_is_dropped(tmp_path: Path) -> None:
    """Neither can hold memory or a task of the agent."""
    root = StateRoot(tmp_path)

    async def scenario() -> None:
        async with served(root, request_timeout_seconds=0.2):
            assert await raw(root, b"") == b""
            with suppress(ConnectionError):  # The server may close while we still write.
                assert await raw(root, b"x" * (3 * LONGEST_LINE_BYTES)) == b""
            assert await asked(root, "echo") == {"echoed": {}}

    run(scenario())


def test_a_stop_does_not_wait_for_a_client_that_stays(tmp_path: Path) -> None:
    """A forgotten connection cannot keep the agent from ending."""
    root = StateRoot(tmp_path)

    async def scenario() -> None:
        async with served(root):
            reader, writer = await asyncio.open_unix_connection(str(root.control_socket))
            assert await asked(root, "echo") == {"echoed": {}}
        assert await reader.read() == b""
        writer.close()

    run(scenario())


def test_the_socket_of_a_dead_agent_is_replaced(tmp_path: Path) -> None:
    """A stale file is no agent: the client says so, and a new server takes its place."""
    root = StateRoot(tmp_path)
    root.run.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(root.control_socket))
    with pytest.raises(HostError, match="no agent runs"):
        call(root, "echo")

    async def scenario() -> None:
        async with served(root):
            assert await asked(root, "echo") == {"echoed": {}}

    run(scenario())


def test_without_an_agent_the_client_says_how_to_start_one(tmp_path: Path) -> None:
    """Exit code 71 and the command to type."""
    with pytest.raises(HostError, match="no agent runs on the state root") as caught:
        call(StateRoot(tmp_path / "nowhere"), "status")
    assert "journeyman run" in caught.value.advice
    assert caught.value.exit_code == 71


@pytest.mark.parametrize("answer", [b"", b"half", b"[]\n", b'{"result": 1}\n'])
def test_an_answer_that_is_none_is_explained(tmp_path: Path, answer: bytes) -> None:
    """An agent that dies while it is asked is a problem of the host, not a traceback."""
    root = StateRoot(tmp_path)
    root.run.mkdir()

    async def scenario() -> None:
        async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(answer)
            writer.close()

        server = await asyncio.start_unix_server(answering, str(root.control_socket))
        with pytest.raises(HostError, match="ended before it answered"):
            await asked(root, "status")
        server.close()

    run(scenario())


def test_an_agent_that_hangs_does_not_hang_its_client(tmp_path: Path) -> None:
    """The client's deadline is its own."""
    root = StateRoot(tmp_path)
    root.run.mkdir()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(root.control_socket))
        silent.listen()
        with pytest.raises(HostError, match="does not answer"):
            call(root, "status", timeout_seconds=0.05)


def test_a_run_folder_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    """A file where the folder should be is one clear line."""
    (tmp_path / "run").write_text("")

    async def scenario() -> None:
        with pytest.raises(HostError, match="control socket"):
            async with served(StateRoot(tmp_path)):
                pass

    run(scenario())


def test_the_kernel_says_who_asks() -> None:
    """The uid at the other end is ours here."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) == os.geteuid()


@pytest.mark.parametrize(
    ("verb", "is_owner", "is_shared", "is_served"),
    [
        ("stop", True, False, True),
        ("stop", True, True, True),
        ("status", False, True, True),
        ("status", False, False, False),
        ("stop", False, True, False),
        ("lane-run", False, True, False),
    ],
)
def test_who_may_ask_for_what(verb: str, is_owner: bool, is_shared: bool, is_served: bool) -> None:  # noqa: FBT001
    """Root and the owner may all; others may look, and only where the socket is meant for a group."""
    with contextlib.nullcontext() if is_served else pytest.raises(HostError, match=verb):
        check_peer(verb, is_owner=is_owner, is_shared=is_shared)


@pytest.mark.parametrize("descriptors", ["/proc/self/fd", "/no/such/folder"])
def test_the_alias_of_a_long_path_does_not_outlive_its_use(tmp_path: Path, descriptors: str) -> None:
    """With and without /proc: a real socket is reached, and no descriptor and no link is left behind."""
    path = tmp_path / ("z" * 120) / "agent.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with socket_address(path, descriptors) as address:
            server.bind(address)
        assert path.is_socket()
        server.listen()
        with socket_address(path, descriptors) as address:
            client.connect(address)
    assert not Path(address).parent.exists()
