"""Asks a model server for a short answer, and tells how fast it came.

httpx is imported with the first question, as no server is asked before the agent is ready.
"""

from __future__ import annotations

import asyncio
import contextlib

from journeyman.adapters.local_http import local_client
from journeyman.core.proxy.generation import Generation
from journeyman.core.speed import MEASURED_TOKENS, QUESTION, tokens_per_second
from journeyman.errors import WorkerError
from journeyman.ports import Endpoint


class HttpSpeedProbe:
    """Measures how fast a chat model generates.

    Args:
        limit_seconds: for the whole answer; of a longer one that part counts which came in time.
    """

    def __init__(self, *, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds

    async def __call__(self, endpoint: Endpoint, model: str) -> float:
        """Tokens a second.  The server is let go at once when this is cancelled.

        Raises:
            WorkerError: it did not answer, or not enough to tell.
        """
        import httpx

        generation = Generation(streamed=True)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limit_seconds):
                    await _read(endpoint, model, generation, self._limit_seconds)
        except httpx.HTTPError as error:
            raise WorkerError(f"the model server gave no answer: {error!r}") from error
        speed = tokens_per_second(generation.tokens, generation.first_at, generation.last_at)
        if speed is None or generation.error:
            why = generation.error or f"{generation.tokens} tokens in {self._limit_seconds:g} s"
            raise WorkerError(f"the speed of the model server cannot be told: {why}")
        return speed


async def _read(endpoint: Endpoint, model: str, generation: Generation, limit_seconds: float) -> None:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": MEASURED_TOKENS,
        # The likeliest word each time, so that no answer ends early by chance.
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Authorization": f"Bearer {endpoint.api_key.decode()}"} if endpoint.api_key else {}
    clock = asyncio.get_running_loop()
    async with (
        local_client(endpoint.base_url, headers=headers, timeout=limit_seconds) as client,
        client.stream("POST", f"{endpoint.base_url}/chat/completions", json=body) as reply,
    ):
        reply.raise_for_status()
        async for data in reply.aiter_bytes():
            generation.feed(data, clock.time())
