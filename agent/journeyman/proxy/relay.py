"""Passes a reply on, byte for byte, and notices how it ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import h11

from journeyman.core.proxy.figures import Ending, Outcome
from journeyman.core.proxy.generation import EVENT_STREAM, JUDGED_PATHS, Generation, error_event
from journeyman.core.proxy.refusal import error_object
from journeyman.core.proxy.request import to_client
from journeyman.proxy.log import tell
from journeyman.proxy.upstream import Reply
from journeyman.proxy.wire import Wire

FIRST_ERROR_STATUS = 400


class BrokenReplyError(Exception):
    """The reply cannot be completed, and its client was told."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass
class Relay:
    """One reply on its way to its client.

    Attributes:
        client: who gets it.
        reply: what the server began to answer.
        path: of the request.
        model: the name of the route.
        stall_seconds: the longest silence of either side.
        tail_seconds: the longest silence after the model's last word.
    """

    client: Wire
    reply: Reply
    path: str
    model: str
    stall_seconds: float
    tail_seconds: float

    def __post_init__(self) -> None:
        kind = dict(self.reply.head.headers).get(b"content-type", b"")
        self._streamed = kind.startswith(EVENT_STREAM)
        self._judged = self._streamed and self.path.endswith(JUDGED_PATHS)
        self._framed = any(name == b"content-length" for name, _ in self.reply.head.headers)
        self.generation = Generation(streamed=self._streamed)

    async def run(self) -> Outcome:
        """Passes everything on.

        Returns:
            How it ended; the client's connection may go on then.

        Raises:
            BrokenReplyError: it was cut off, and so must the client's connection be.
        """
        head = self.reply.head
        headers = to_client(list(head.headers))
        self.client.queue(h11.Response(status_code=head.status_code, headers=headers, reason=head.reason))
        try:
            await self._body()
        except TimeoutError as error:
            if not self._is_whole():
                raise self._broken(Outcome.STALLED, f"silent for {self.stall_seconds:g} s") from error
        except (h11.RemoteProtocolError, ConnectionError) as error:
            if not self._is_whole():
                raise self._broken(Outcome.TRUNCATED, "its server broke off") from error
        if self.generation.error:
            tell("error_event_seen", model=self.model)
        elif self._judged and not self.generation.finished:
            # As from a server that ends its replies by closing, killed in the middle: a whole reply to HTTP.
            raise self._broken(Outcome.TRUNCATED, "it ended before the model did")
        self.client.send(h11.EndOfMessage())
        failed = self.generation.error or head.status_code >= FIRST_ERROR_STATUS
        return Outcome.SERVER_ERROR if failed else Outcome.DONE

    async def _body(self) -> None:
        loop, generation = asyncio.get_running_loop(), self.generation
        # One timeout that is pushed on, as a new one for each token would cost more than the token.
        async with asyncio.timeout(None) as patience:
            while True:
                silence = self.tail_seconds if generation.finished else self.stall_seconds
                patience.reschedule(loop.time() + silence)
                event = await self.reply.wire.receive(flush=self.client)
                if not isinstance(event, h11.Data):
                    return
                data = bytes(event.data)
                generation.feed(data, loop.time())
                self.client.queue(h11.Data(data=data))
                if self.client.is_full:
                    patience.reschedule(loop.time() + self.stall_seconds)
                    await self.client.drain()

    def _is_whole(self) -> bool:
        """Whether nothing is missing but the end of the reply, which some servers never send."""
        return self._judged and self.generation.finished and not self._framed

    def _broken(self, outcome: Outcome, what: str) -> BrokenReplyError:
        tell(f"reply_{outcome.value}", model=self.model, tokens=self.generation.tokens)
        message = f"the stream of {self.model} is not whole: {what}"
        if self._streamed and not self._framed:
            # Whoever reads events learns it from this one, and whoever does not from the missing last chunk.
            code = f"stream_{outcome.value}"
            self.client.send(h11.Data(data=error_event(error_object(code, message, 502))))
        return BrokenReplyError(outcome, message)

    def ending(self, outcome: Outcome, queued_seconds: float) -> Ending:
        """The figures of this reply."""
        generation, began = self.generation, self.reply.passed_on_at
        first, last = generation.first_at, generation.last_at
        return Ending(
            outcome,
            queued_seconds=queued_seconds,
            seconds=asyncio.get_running_loop().time() - began,
            first_token_seconds=None if first is None else first - began,
            tokens=generation.tokens,
            generating_seconds=0.0 if first is None or last is None else last - first,
        )
