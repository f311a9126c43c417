"""What the proxy itself answers instead of a model server, in the words of the OpenAI API."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass
class RefusalError(Exception):
    """A request that is not passed on.

    Attributes:
        status: the HTTP status.
        code: one word for programs.
        message: one line for people that says what to do.
        retry_after_seconds: when to try again; None where that would not help.
    """

    status: int
    code: str
    message: str
    retry_after_seconds: int | None = None

    def body(self) -> bytes:
        """The JSON object that OpenAI clients show."""
        return json.dumps({"error": error_object(self.code, self.message, self.status)}).encode()


def error_object(code: str, message: str, status: int) -> dict[str, object]:
    """The `error` of a reply, or of an event inside a stream."""
    server_error = 500
    kind = "server_error" if status >= server_error else "invalid_request_error"
    return {"message": message, "type": kind, "code": code}
