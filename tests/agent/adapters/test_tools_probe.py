"""What a server must say for its tools to be believed; real ones are asked in `tests/contracts`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from journeyman.adapters.tools_probe import TOOLS, HttpToolsProbe
from journeyman.errors import WorkerError
from journeyman.ports import Endpoint
from tests.support.scripted_server import answering, plain


def counted(prompt_tokens: int) -> Sequence[bytes]:
    return [plain("200 OK", json.dumps({"usage": {"prompt_tokens": prompt_tokens}}).encode())]


def probe(first: Sequence[bytes], second: Sequence[bytes]) -> bool:
    async def scenario() -> bool:
        async with answering(first, later=second) as server:
            found = await HttpToolsProbe(limit_seconds=20)(Endpoint(server.base_url, b"k"), "m")
            ((head, without), (_, with_tools)) = server.requests
            assert b"Bearer k" in head
            assert with_tools == {**without, "tools": TOOLS}
            return found

    return asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize(
    ("second", "reach"),
    [
        (counted(150), True),
        (counted(20), False),
        ([plain("400 Bad Request", b"tools need --jinja")], False),
        ([plain("500 Internal Server Error", b"")], False),
    ],
)
def test_tools_reach_a_model_whose_prompt_grows_with_them(second: Sequence[bytes], *, reach: bool) -> None:
    """A prompt of the same length, or a refusal, says that they do not."""
    assert probe(counted(20), second) is reach


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (counted(20), [plain("503 Service Unavailable", b"")], "503"),
        ([plain("500 Internal Server Error", b"")], [], "500"),
        ([plain("200 OK", b"{}")], [], "how long a prompt is"),
        ([plain("200 OK", b"<html>")], [], "how long a prompt is"),
        (counted(20), [], "no answer"),
    ],
)
def test_what_tells_nothing_of_tools_is_an_error(
    first: Sequence[bytes], second: Sequence[bytes], why: str
) -> None:
    """A server that is busy, broken or silent is not taken for one without tools."""
    with pytest.raises(WorkerError, match=why):
        probe(first, second)
