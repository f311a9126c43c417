"""Proves over HTTP that a model server generates: the port `InferenceProbe`.

httpx is imported with the first question, as no server is asked before the agent is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from journeyman.adapters.local_http import local_client
from journeyman.errors import WorkerError
from journeyman.ports import Endpoint

if TYPE_CHECKING:
    import httpx


class HttpInferenceProbe:
    """Asks for one token.

    Args:
        timeout_seconds: for the whole request; a large model on a slow host takes its time.
    """

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds

    async def prove(self, endpoint: Endpoint, model: str, mode: str = "chat") -> None:
        """See `InferenceProbe.prove`."""
        import httpx

        path, question, has_answered = QUESTIONS[mode]
        headers = {"Authorization": f"Bearer {endpoint.api_key.decode()}"} if endpoint.api_key else {}
        try:
            async with local_client(endpoint.base_url, timeout=self._timeout_seconds) as client:
                url = endpoint.base_url + path
                response = await client.post(url, json={"model": model, **question}, headers=headers)
        except httpx.TransportError as error:
            raise WorkerError(f"no answer from the model server: {error!r}") from error
        if response.status_code != httpx.codes.OK:
            raise WorkerError(f"the model server answered {response.status_code}: {response.text[:200]}")
        if not _holds(response, has_answered):
            raise WorkerError("the model server answered without a token")


def _holds(response: httpx.Response, has_answered: Callable[[Any], bool]) -> bool:
    try:
        return has_answered(response.json())
    except (ValueError, LookupError, TypeError):
        return False


def _generated(reply: Any) -> bool:
    """Whether tokens were counted; a token may be one that has no text."""
    return bool(reply["choices"]) and int(reply["usage"]["completion_tokens"]) > 0


# What is asked in each mode: the path, the question, and what counts as an answer.
QUESTIONS: dict[str, tuple[str, dict[str, Any], Callable[[Any], bool]]] = {
    "chat": (
        "/chat/completions",
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
        _generated,
    ),
    "embedding": ("/embeddings", {"input": "Hi"}, lambda reply: bool(reply["data"][0]["embedding"])),
    "rerank": ("/rerank", {"query": "Hi", "documents": ["Hi"]}, lambda reply: bool(reply["results"])),
}
