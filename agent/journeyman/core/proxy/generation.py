"""What a reply says while it passes by: tokens, the model's last word, and errors inside a 200.

Nothing is changed here.  A stream is looked at line by line, and only a line that may matter is parsed.
"""

from __future__ import annotations

import json
import re

LAST_WORD = re.compile(rb'"finish_reason"\s*:\s*"')
COUNTED = re.compile(rb'"(?:completion_tokens|predicted_n)"\s*:\s*(\d+)')
# Not the role alone, with which some servers begin before they have read the prompt.
TEXT = re.compile(rb'"(?:content|reasoning_content|text|arguments)"\s*:\s*"[^"]')
LONGEST_LINE_BYTES = 1024 * 1024
LONGEST_TAIL_BYTES = 4096
EVENT_STREAM = b"text/event-stream"
# The streams whose end we can judge; others, such as /v1/responses, have endings of their own.
JUDGED_PATHS = ("/completions",)


class Generation:
    """One reply.

    Args:
        streamed: whether it is a stream of server-sent events.

    Attributes:
        tokens: what the server counted, or else the events that had text.
        first_at: when the first text came; None before it.
        last_at: when the last text came.
        finished: whether the model has said its last word.
        error: what an error event said; empty if there was none.
    """

    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed
        self._rest = b""
        self.tokens = 0
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.finished = False
        self.error = ""

    def feed(self, data: bytes, now: float) -> None:
        """Looks at the next bytes.

        Args:
            data: of the body, cut anywhere.
            now: monotonic seconds.
        """
        if not self._streamed:
            # Only the end of a whole answer says how long it is.
            self._rest = (self._rest + data)[-LONGEST_TAIL_BYTES:]
            self._count(self._rest)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE_BYTES:
            self._rest = b""
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)

    def _event(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self.finished = True
            return
        if b'"error"' in data:
            self.error = self.error or _error_in(data)
        if LAST_WORD.search(data):
            self.finished = True
        if TEXT.search(data):
            self.tokens += 1
            self.last_at = now
            self.first_at = now if self.first_at is None else self.first_at
        if b'"usage"' in data or b'"timings"' in data:
            self._count(data)

    def _count(self, data: bytes) -> None:
        counted = COUNTED.search(data)
        if counted:
            self.tokens = int(counted[1])


def _error_in(data: bytes) -> str:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    error = event.get("error") if isinstance(event, dict) else None
    if not error:
        return ""
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def error_event(error: dict[str, object]) -> bytes:
    """An error as an event of a stream; the blank line first ends an event that broke off."""
    return b"\n\ndata: " + json.dumps({"error": error}).encode() + b"\n\n"
