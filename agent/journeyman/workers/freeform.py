"""Asks a model server one question: `python -m journeyman.workers.freeform`.

Runs in the folder that holds `request.json` and `api-key`, and writes `result.json` as its last act.  It
exits with 0 whenever that file tells the outcome, good or bad; it never asks twice, as the caller knows
what a second try would cost.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from journeyman.core.completion import (
    KEY_FILE,
    REQUEST_FILE,
    RESULT_FILE,
    Completion,
    CompletionRequest,
    Trouble,
)
from journeyman_updater.contract import write_durably

# After the model's last word the usage may follow; a server that keeps the connection open gets no more time.
TAIL_SECONDS = 2.0
DATA = "data:"


class CompletionError(Exception):
    """The exchange failed in a way that `Trouble` names."""

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


@dataclass
class Answer:
    """The stream so far."""

    started: float
    text: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token: float | None = None
    last_token: float | None = None

    def take(self, chunk: dict[str, Any]) -> None:
        """Adds one chunk.

        Raises:
            CompletionError: it is an error, as some servers send in a stream that began with 200.
        """
        if error := chunk.get("error"):
            raise CompletionError(Trouble.SERVER_ERROR, _text_of(error))
        usage = chunk.get("usage") or {}
        self.prompt_tokens = usage.get("prompt_tokens", self.prompt_tokens)
        self.completion_tokens = usage.get("completion_tokens", self.completion_tokens)
        for choice in chunk.get("choices") or []:
            content = (choice.get("delta") or {}).get("content")
            if content:
                self.text += content
                self.last_token = time.monotonic()
                self.first_token = self.first_token or self.last_token
            self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def completion(self) -> Completion:
        """The figures so far."""
        rate = None
        if self.first_token and self.last_token and self.last_token > self.first_token:
            rate = (self.completion_tokens - 1) / (self.last_token - self.first_token)
        return Completion(
            text=self.text,
            finish_reason=self.finish_reason,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            first_token_seconds=None if self.first_token is None else self.first_token - self.started,
            tokens_per_second=rate if rate and rate > 0 else None,
            elapsed_seconds=time.monotonic() - self.started,
        )


async def complete(request: CompletionRequest, api_key: str) -> Completion:
    """Asks and reads the whole answer; every failure is in what it returns."""
    answer = Answer(time.monotonic())
    limit = asyncio.timeout(request.timeout_seconds or None)
    try:
        async with limit:
            await _exchange(request, api_key, answer, limit)
    except CompletionError as error:
        return replace(answer.completion(), trouble=error.trouble, message=str(error))
    except (TimeoutError, httpx.ReadTimeout) as error:
        if not answer.finish_reason:
            return replace(
                answer.completion(), trouble=Trouble.TIMEOUT, message=_what_ran_out(request, error)
            )
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        message = f"no model server at {request.base_url}: {str(error) or type(error).__name__}"
        return replace(answer.completion(), trouble=Trouble.UNREACHABLE, message=message)
    except httpx.RequestError as error:
        if not answer.finish_reason:
            message = f"the connection broke: {str(error) or type(error).__name__}"
            return replace(answer.completion(), trouble=Trouble.TRUNCATED, message=message)
    return answer.completion()


async def _exchange(request: CompletionRequest, api_key: str, answer: Answer, limit: asyncio.Timeout) -> None:
    timeout = httpx.Timeout(request.stall_timeout_seconds, connect=request.connect_timeout_seconds)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with (
        httpx.AsyncClient(timeout=timeout, headers=headers, trust_env=False) as client,
        client.stream("POST", f"{request.base_url}/chat/completions", json=request.body()) as response,
    ):
        if response.status_code != httpx.codes.OK:
            raise _refusal(response.status_code, await response.aread())
        async for line in response.aiter_lines():
            if not line.startswith(DATA):
                continue
            data = line.removeprefix(DATA).strip()
            if data == "[DONE]":
                break
            finished = bool(answer.finish_reason)
            _take(answer, data)
            if answer.finish_reason and not finished:
                limit.reschedule(asyncio.get_running_loop().time() + TAIL_SECONDS)
    if not answer.finish_reason:
        raise CompletionError(Trouble.TRUNCATED, "the stream ended before the model did")


def _take(answer: Answer, data: str) -> None:
    try:
        answer.take(json.loads(data))
    except (ValueError, TypeError, AttributeError) as error:
        raise CompletionError(Trouble.SERVER_ERROR, f"the stream holds no answer: {data[:80]!r}") from error


def _refusal(status: int, body: bytes) -> CompletionError:
    try:
        message = _text_of(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        message = body[:200].decode(errors="replace").strip()
    text = f"the model server answered {status}: {message}"
    if status in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
        return CompletionError(Trouble.UNAUTHORIZED, text)
    if status == httpx.codes.SERVICE_UNAVAILABLE:
        return CompletionError(Trouble.UNREACHABLE, text)
    if httpx.codes.is_server_error(status):
        return CompletionError(Trouble.SERVER_ERROR, text)
    return CompletionError(Trouble.REJECTED, text)


def _text_of(error: object) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def _what_ran_out(request: CompletionRequest, error: Exception) -> str:
    if isinstance(error, httpx.ReadTimeout):
        return f"the model server was silent for {request.stall_timeout_seconds:g} s"
    return f"not done within {request.timeout_seconds:g} s"


def main() -> int:
    """Reads the request, asks, writes the result.

    Returns:
        0, or 65 when there is no usable request.
    """
    try:
        request = CompletionRequest.from_json(Path(REQUEST_FILE).read_bytes())
        api_key = Path(KEY_FILE).read_text().strip()
    except (OSError, ValueError) as error:
        print(f"no usable request: {error}", file=sys.stderr)
        return 65
    completion = asyncio.run(complete(request, api_key))
    write_durably(Path(RESULT_FILE), completion.to_json())
    print(f"{completion.trouble or completion.finish_reason}: {completion.completion_tokens} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
