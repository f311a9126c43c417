"""Asks a model server whether the tools of a request reach its model.

A server whose chat template has no place for them answers as if nobody had offered any, and does not say so.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from journeyman.adapters.speed_probe import prompt_tokens_of
from journeyman.core.speed import QUESTION
from journeyman.errors import WorkerError
from journeyman.ports import Endpoint

# One that every model could call, and that is never called: a token is all that is asked for.
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Its name"}},
                "required": ["city"],
            },
        },
    }
]
# A server that has no time for a request says nothing of its tools.
BUSY = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}


class HttpToolsProbe:
    """Compares how long a prompt is with tools and without.

    Args:
        limit_seconds: for each of two answers of one token.
    """

    def __init__(self, *, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds

    async def __call__(self, endpoint: Endpoint, model: str, context_tokens: int = 0) -> bool:
        """Whether they reach it; a server that refuses a request for its tools does not take them.

        Raises:
            WorkerError: it did not answer without tools, or does not say how long a prompt is.
        """
        import httpx

        without = await self._prompt_tokens(endpoint, model)
        if not without:
            raise WorkerError("the server does not tell how long a prompt is")
        try:
            return await self._prompt_tokens(endpoint, model, tools=TOOLS) > without
        except WorkerError as error:
            match error.__cause__:
                case httpx.HTTPStatusError(response=reply) if reply.status_code not in BUSY:
                    return False
            raise

    async def _prompt_tokens(self, endpoint: Endpoint, model: str, **more: Any) -> int:
        try:
            async with asyncio.timeout(self._limit_seconds):
                return await prompt_tokens_of(endpoint, model, QUESTION, **more)
        except TimeoutError as error:
            raise WorkerError(f"no answer within {self._limit_seconds:g} s") from error
