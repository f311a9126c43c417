"""Clients of an OpenAI-compatible endpoint that read a stream, or vanish in its middle."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

FINISHED = b'"finish_reason":"length"'
# Ends a chunked body.
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True)
class StreamingClient:
    """Asks one model.

    Attributes:
        base_url: with its `/v1`.
        key: what it shows.
        model: which it asks.
    """

    base_url: str
    key: str
    model: str = "tiny"

    async def begin(self, tokens: int) -> Stream:
        """Asks for so many tokens."""
        where = urlsplit(self.base_url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        body = json.dumps(
            {
                "model": self.model,
                "stream": True,
                "max_tokens": tokens,
                "ignore_eos": True,
                "messages": [{"role": "user", "content": "hi"}],
            }
        ).encode()
        head = (
            f"POST {where.path}/chat/completions HTTP/1.1\r\nHost: {where.netloc}\r\n"
            f"Authorization: Bearer {self.key}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        return Stream(reader, writer)

    async def read_all(self, tokens: int) -> bytes:
        """Asks, and returns everything that comes."""
        return await (await self.begin(tokens)).rest()


@dataclass
class Stream:
    """One reply."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def until_begun(self) -> Stream:
        """Returns when the first event is here: with the first token, even if that is half a character."""
        await self.reader.readuntil(b'"finish_reason"')
        return self

    async def rest(self) -> bytes:
        """All that is still to come."""
        try:
            return await self.reader.read()
        finally:
            self.writer.close()

    def vanish(self) -> None:
        """Ends the connection in the middle, as a client that is killed."""
        self.writer.transport.abort()


def is_whole(reply: bytes) -> bool:
    """Whether the model has said its last word, and HTTP knows of the end."""
    return FINISHED in reply and b"data: [DONE]" in reply and reply.endswith(LAST_CHUNK)
