"""What a server must say for its speed to be told; real ones are asked in `tests/contracts`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from journeyman.adapters.speed_probe import HttpSpeedProbe
from journeyman.core.speed import MEASURED_TOKENS
from journeyman.errors import WorkerError
from journeyman.ports import Endpoint
from tests.support.scripted_server import OK_UNTIL_CLOSE, answering, delta, event, plain

ERROR = [OK_UNTIL_CLOSE, event({"error": {"message": "out of slots"}})]
SHORT = [OK_UNTIL_CLOSE, event(delta("one")), event(delta("two", "stop")), event("[DONE]")]


@pytest.mark.parametrize(
    ("parts", "hang", "why"),
    [
        ([plain("503 Service Unavailable", b"loading")], False, "503"),
        (ERROR, False, "out of slots"),
        (SHORT, False, "2 tokens"),
        (SHORT[:2], True, "1 tokens in 0.2 s"),
        ([], False, "no answer"),
    ],
)
def test_what_tells_no_speed_is_an_error(parts: Sequence[bytes], why: str, *, hang: bool) -> None:
    """A refusal, an error inside a 200, too few tokens, silence until the limit, and no answer at all."""

    async def scenario() -> None:
        async with answering(parts, hang=hang) as server:
            with pytest.raises(WorkerError, match=why):
                await HttpSpeedProbe(limit_seconds=0.2 if hang else 20)(Endpoint(server.base_url, b"k"), "m")
            ((head, body),) = server.requests
            assert b"Bearer k" in head
            assert (body["model"], body["max_tokens"]) == ("m", MEASURED_TOKENS)

    asyncio.run(asyncio.wait_for(scenario(), 30))
