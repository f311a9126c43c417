"""One question to a model server and what came back, as they lie in a freeform worker's folder.

`request.json` is written by the agent before the worker starts, `result.json` by the worker as its last
act.  Both outlive either program, so an agent of another release reads them, too: fields are only added.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

FORMAT_VERSION = 1
REQUEST_FILE = "request.json"
RESULT_FILE = "result.json"
KEY_FILE = "api-key"


class Trouble(StrEnum):
    """Why a completion is not whole."""

    UNREACHABLE = "unreachable"
    """No server answered, or it is still loading its model."""
    UNAUTHORIZED = "unauthorized"
    """The server refused our key."""
    REJECTED = "rejected"
    """The server refused the request itself, e.g. as too long for its context."""
    SERVER_ERROR = "server_error"
    """The server failed, with a status or inside a stream that had begun with 200."""
    TRUNCATED = "truncated"
    """The stream ended before the model did."""
    TIMEOUT = "timeout"
    """The task's time was over, or no token came for too long."""


@dataclass(frozen=True)
class CompletionRequest:
    """What to ask, and where.

    Attributes:
        base_url: of the OpenAI-compatible API, with its `/v1`.
        model: the name that the server knows.
        system: the system prompt, or an empty string for the model's own.
        prompt: the user's message.
        temperature: None leaves it to the server.
        max_tokens: the longest answer; 0 leaves it to the server.
        seed: None leaves it to the server.
        timeout_seconds: for the whole exchange; 0 is no limit.
        connect_timeout_seconds: for the connection.
        stall_timeout_seconds: for the silence before the first and between any two parts of the answer.
    """

    base_url: str
    model: str
    system: str
    prompt: str
    temperature: float | None = None
    max_tokens: int = 0
    seed: int | None = None
    timeout_seconds: float = 0
    connect_timeout_seconds: float = 5
    stall_timeout_seconds: float = 300

    def body(self) -> dict[str, Any]:
        """The body of `POST /v1/chat/completions`, streamed, with the usage in its last chunk."""
        roles = (("system", self.system), ("user", self.prompt))
        options = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens or None,
            "seed": self.seed,
        }
        return {
            "model": self.model,
            "messages": [{"role": role, "content": text} for role, text in roles if text],
            "stream": True,
            "stream_options": {"include_usage": True},
            **{name: value for name, value in options.items() if value is not None},
        }

    def to_json(self) -> bytes:
        return _to_json(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Reads what `to_json` wrote.  Raises ValueError: it is no request."""
        return cls(**_fields_of(cls, data))


@dataclass(frozen=True)
class Completion:
    """What came back.

    Attributes:
        text: the answer as far as it came.
        finish_reason: the server's word, `stop` or `length` as a rule; empty if the stream broke.
        trouble: why it is not whole, or None.
        message: one line about the trouble.
        prompt_tokens: as counted by the server; 0 if it did not say.
        completion_tokens: likewise.
        first_token_seconds: from sending the request to the first text; None if none came.
        tokens_per_second: after the first token; None if it cannot be told.
        elapsed_seconds: for the whole exchange.
    """

    text: str = ""
    finish_reason: str = ""
    trouble: Trouble | None = None
    message: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token_seconds: float | None = None
    tokens_per_second: float | None = None
    elapsed_seconds: float = 0

    def to_json(self) -> bytes:
        return _to_json(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Reads what `to_json` wrote.  Raises ValueError: it is no result."""
        fields = _fields_of(cls, data)
        trouble = fields.get("trouble")
        return cls(**{**fields, "trouble": None if trouble is None else Trouble(trouble)})


def _to_json(fields: dict[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT_VERSION, **fields}, sort_keys=True).encode()


def _fields_of(kind: type[CompletionRequest | Completion], data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict) or value.get("format") != FORMAT_VERSION:
        raise ValueError(f"not in format {FORMAT_VERSION}")
    known = kind.__dataclass_fields__
    fields = {name: content for name, content in value.items() if name in known}
    missing = [
        name for name in ("base_url", "model", "system", "prompt") if name in known and name not in fields
    ]
    if missing:
        raise ValueError(f"without {', '.join(missing)}")
    return fields
