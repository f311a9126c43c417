"""A client that streams one long answer from a model server, slowly, and counts its tokens."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from journeyman_updater.contract import StateRoot, WorkerRecord
from tests.support.waiting import eventually

# Tokens of the tiny model that say nothing, and bytes that are no character by themselves: without them each
# token is a part of the answer for itself, and a client can count what it got.
UNCOUNTABLE = {str(token): -100 for token in (0, 1, 2, *range(3 + 128, 3 + 256))}
# The alternatives of each token make it so large that no socket holds what the client has not read yet.
ALTERNATIVES = 50
READ_SECONDS = 60.0


@dataclass(frozen=True)
class ModelAddress:
    """Where a model server answers.

    Attributes:
        base_url: of the OpenAI API.
        key: that it wants.
    """

    base_url: str
    key: str

    @classmethod
    def of(cls, root: StateRoot, record: WorkerRecord) -> ModelAddress:
        """As the worker itself has written it."""
        files = root.workers / record.worker_id / "files"
        base = json.loads((files / "endpoint.json").read_text())["base_url"]
        return cls(base, (files / "api-key").read_text())

    def question(self, tokens: int, **more: Any) -> dict[str, Any]:
        """The arguments of a request for an answer of exactly that many tokens."""
        body = {
            "messages": [{"role": "user", "content": "Go on."}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "logit_bias": UNCOUNTABLE,
            **more,
        }
        headers = {"Authorization": f"Bearer {self.key}"}
        return {"url": f"{self.base_url}/chat/completions", "json": body, "headers": headers}


class LongStream(threading.Thread):
    """Reads an answer of `tokens` tokens, and no further than it was allowed to.

    Attributes:
        read: tokens that have come, each counted.
        read_bytes: of them.
        promised: tokens that the server says it has sent, in its last words.
        reason: why it ended, in the server's words.
        ended: whether the server has said that this was all.
        failure: what broke the stream, or an empty string.
    """

    def __init__(self, address: ModelAddress, tokens: int) -> None:
        super().__init__(name="long stream", daemon=True)
        self._request = address.question(
            tokens,
            stream=True,
            stream_options={"include_usage": True},
            logprobs=True,
            top_logprobs=ALTERNATIVES,
        )
        self._allowed = 0
        self._more = threading.Condition()
        self.read = self.read_bytes = self.promised = 0
        self.reason = self.failure = ""
        self.ended = False

    def allow(self, tokens: int) -> None:
        """Lets it read so many more, and returns once it has."""
        with self._more:
            self._allowed += tokens
            self._more.notify()
        eventually(lambda: self.failure or self.read >= self._allowed, within_seconds=READ_SECONDS)
        assert not self.failure, f"after {self.read} tokens: {self.failure}"

    def finish(self) -> None:
        """Lets it read all that is left, and returns at the end of the answer."""
        with self._more:
            self._allowed = 2**31
            self._more.notify()
        self.join(READ_SECONDS)
        assert not self.is_alive(), "the stream did not end"

    def run(self) -> None:
        # A small window keeps what was not read yet with the server.
        options = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)]
        try:
            with (
                httpx.Client(
                    transport=httpx.HTTPTransport(socket_options=options), timeout=READ_SECONDS
                ) as client,
                client.stream("POST", **self._request) as response,
            ):
                response.raise_for_status()
                self._take(response)
        except httpx.HTTPError as error:
            self.failure = f"{type(error).__name__}: {error}"

    def _take(self, response: httpx.Response) -> None:
        rest = b""
        for data in response.iter_raw():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                self._take_event(event)

    def _take_event(self, event: bytes) -> None:
        if event == b"data: [DONE]":
            self.ended = True
            return
        chunk = json.loads(event.removeprefix(b"data: "))
        self.promised = (chunk.get("usage") or {}).get("completion_tokens", self.promised)
        for choice in chunk["choices"]:
            self.reason = choice["finish_reason"] or self.reason
            if choice["delta"].get("content"):
                with self._more:
                    self._more.wait_for(lambda: self.read < self._allowed)
                self.read += 1
                self.read_bytes += len(event)


class ShortAnswers(threading.Thread):
    """Asks for a few tokens again and again, until it is told to stop.

    Attributes:
        answered: how many answers were whole.
        failure: what was wrong with one, or an empty string.
    """

    TOKENS = 8

    def __init__(self, address: ModelAddress) -> None:
        super().__init__(name="short answers", daemon=True)
        self._request = address.question(self.TOKENS)
        self._stopping = threading.Event()
        self.answered = 0
        self.failure = ""

    def stop(self) -> None:
        """Returns after the answer of this moment."""
        self._stopping.set()
        self.join(READ_SECONDS)

    def run(self) -> None:
        with httpx.Client(timeout=READ_SECONDS) as client:
            while not self._stopping.wait(0.2) and not self.failure:
                try:
                    reply = client.post(**self._request).raise_for_status().json()
                except httpx.HTTPError as error:
                    self.failure = f"{type(error).__name__}: {error}"
                    return
                told = reply["usage"]["completion_tokens"]
                self.failure = "" if told == self.TOKENS else f"{told} tokens instead of {self.TOKENS}"
                self.answered += 1


def socket_bytes() -> int:
    """The most that the kernel keeps of a stream for its sender."""
    return int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
