"""Asks a model server for a short answer, and tells how fast it came, also behind a long prompt.

httpx is imported with the first question, as no server is asked before the agent is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from journeyman.adapters.local_http import local_client
from journeyman.core import speed
from journeyman.core.proxy.generation import Generation
from journeyman.errors import WorkerError
from journeyman.ports import Endpoint


class HttpSpeedProbe:
    """Measures how fast a chat model generates.

    Args:
        limit_seconds: for the whole answer; of a longer one that part counts which came in time.
    """

    def __init__(self, *, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds

    async def __call__(self, endpoint: Endpoint, model: str, context_tokens: int = 0) -> float:
        """Tokens a second.  The server is let go at once when this is cancelled.

        Raises:
            WorkerError: it did not answer, or not enough to tell.
        """
        return await _speed_of(endpoint, model, speed.QUESTION, self._limit_seconds)


class HttpLongSpeedProbe:
    """Measures how fast a chat model generates behind a prompt of some 2048 tokens.

    Args:
        limit_seconds: for the answer.
        prompt_seconds: for the prompt.
    """

    def __init__(self, *, limit_seconds: float, prompt_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._prompt_seconds = prompt_seconds

    async def __call__(self, endpoint: Endpoint, model: str, context_tokens: int) -> float:
        """Tokens a second.  The server is let go at once when this is cancelled.

        Raises:
            WorkerError: its context is too short, the prompt would take too long, or it did not answer.
        """
        if why := speed.why_no_long_prompt(context_tokens):
            raise WorkerError(why)
        clock = asyncio.get_running_loop()
        begun = clock.time()
        try:
            async with asyncio.timeout(self._prompt_seconds):
                tokens = await prompt_tokens_of(endpoint, model, speed.long_text(speed.COUNTED_WORDS))
        except TimeoutError as error:
            raise WorkerError(f"a prompt takes longer than {self._prompt_seconds:g} s") from error
        if not tokens:
            raise WorkerError("the server does not tell how long a prompt is")
        expected = (clock.time() - begun) * speed.LONG_PROMPT_TOKENS / tokens
        if expected > self._prompt_seconds:
            raise WorkerError(f"a prompt of {speed.LONG_PROMPT_TOKENS} tokens would take {expected:.0f} s")
        text = speed.long_text(speed.words_for_long_prompt(speed.COUNTED_WORDS, tokens))
        limit_seconds = self._prompt_seconds + self._limit_seconds
        return await _speed_of(endpoint, model, f"{text}\n\n{speed.QUESTION}", limit_seconds)


async def _speed_of(endpoint: Endpoint, model: str, question: str, limit_seconds: float) -> float:
    generation = Generation(streamed=True)
    with _explained(), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_seconds):
            await _read(endpoint, model, question, generation, limit_seconds)
    found = speed.tokens_per_second(generation.tokens, generation.first_at, generation.last_at)
    if found is None or generation.error:
        why = generation.error or f"{generation.tokens} tokens in {limit_seconds:g} s"
        raise WorkerError(f"the speed of the model server cannot be told: {why}")
    return found


async def _read(
    endpoint: Endpoint, model: str, question: str, generation: Generation, limit_seconds: float
) -> None:
    body = {
        **_body(model, question, speed.MEASURED_TOKENS),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    clock = asyncio.get_running_loop()
    async with (
        local_client(endpoint.base_url, headers=_headers(endpoint), timeout=limit_seconds) as client,
        client.stream("POST", f"{endpoint.base_url}/chat/completions", json=body) as reply,
    ):
        reply.raise_for_status()
        async for data in reply.aiter_bytes():
            generation.feed(data, clock.time())


async def prompt_tokens_of(endpoint: Endpoint, model: str, question: str, **more: Any) -> int:
    """How many tokens a question has for that server; 0 if it does not say.  Bounded by the caller.

    Args:
        endpoint: where it answers.
        model: what it calls its model.
        question: of the user.
        more: further fields of the request.

    Raises:
        WorkerError: it gave no answer, or none with a 200.
    """
    body = {**_body(model, question, 1), **more}
    with _explained():
        async with local_client(endpoint.base_url, headers=_headers(endpoint), timeout=None) as client:
            reply = await client.post(f"{endpoint.base_url}/chat/completions", json=body)
            reply.raise_for_status()
            try:
                return speed.prompt_tokens(reply.json())
            except ValueError:
                return 0


def _body(model: str, question: str, tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": tokens,
        # The likeliest word each time, so that no answer ends early by chance.
        "temperature": 0,
    }


def _headers(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.api_key.decode()}"} if endpoint.api_key else {}


@contextmanager
def _explained() -> Iterator[None]:
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        raise WorkerError(f"the model server gave no answer: {error!r}") from error
