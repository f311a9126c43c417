"""What a client asks for: the path, the headers that go on, and the model that its body names."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]

from journeyman.core.proxy.refusal import RefusalError

API = "/v1"
Headers = list[tuple[bytes, bytes]]

# RFC 9110 §7.6.1, and what was said to us alone.
HOP_BY_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
OURS = {b"host", b"authorization", b"x-api-key", b"content-length", b"expect", b"accept-encoding"}
# Segments of plain characters: what needs escapes, or climbs, is no path of this API.
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")
JSON_SPACE = re.compile(r"[ \t\n\r]*")
DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Target:
    """A request's target in two parts: the path, and the query with its question mark or nothing."""

    path: str
    query: str

    @classmethod
    def of(cls, target: bytes) -> Target:
        """Raises RefusalError for anything but a plain path of this server."""
        path, mark, query = target.decode("ascii", "replace").partition("?")
        if not PLAIN_PATH.fullmatch(path):
            raise RefusalError(404, "unknown_path", "there is no such path here; the API is below /v1")
        return cls(path, mark + query)

    def below(self, prefix: str) -> bytes:
        """The target at a server whose API lies below `prefix`."""
        return (prefix + self.path.removeprefix(API) + self.query).encode()


def is_allowed(headers: Iterable[tuple[bytes, bytes]], key: bytes) -> bool:
    """Whether the client has shown the key, as a bearer token or as `x-api-key`."""
    shown = b""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            shown = value[7:].strip()
        elif name == b"x-api-key":
            shown = value.strip()
    return hmac.compare_digest(shown, key)


def to_server(headers: Headers, *, host: str, key: bytes, length: int) -> Headers:
    """The headers of a request as the model server gets them, with its own key and without the client's.

    `accept-encoding` stays here: a stream that is packed cannot be watched, and saves nothing on loopback.
    """
    kept = _kept(headers, OURS)
    kept.append((b"host", host.encode()))
    kept.append((b"content-length", str(length).encode()))
    kept.append((b"connection", b"close"))
    if key:
        kept.append((b"authorization", b"Bearer " + key))
    return kept


def to_client(headers: Headers) -> Headers:
    """The headers of a reply as the client gets them; its length, if known, stays."""
    return _kept(headers, set())


def _kept(headers: Headers, dropped: set[bytes]) -> Headers:
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    return [(name, value) for name, value in headers if name not in HOP_BY_HOP | dropped | named]


@dataclass(frozen=True)
class Body:
    """The body of a request.

    Attributes:
        text: all of it.
        model: what its `model` field says.
        start: where the value of that field begins.
        end: where it ends.
    """

    text: str
    model: str
    start: int
    end: int

    @classmethod
    def of(cls, data: bytes) -> Body:
        """Finds the one `model` field.  The rest is read only as far as finding it needs.

        Raises:
            RefusalError: it is no JSON object with exactly one.  Of two, the model server might take the
                other one than we did.
        """
        try:
            text = data.decode()
            found = [field for field in _members(text) if field[0] == "model"]
        except (ValueError, RecursionError) as error:
            raise RefusalError(400, "bad_json", f"the body is no JSON object: {error}") from error
        if len(found) != 1:
            many = "names the model twice" if found else "names no model"
            raise RefusalError(400, "bad_model", f"the body {many}; send one `model` field")
        _, value, start, end = found[0]
        if not isinstance(value, str) or not value:
            raise RefusalError(400, "bad_model", "the `model` field is no name")
        return cls(text, value, start, end)

    def pinned(self, model: str) -> bytes:
        """The body with that model in its `model` field, and no other byte changed."""
        if model == self.model:
            return self.text.encode()
        return (self.text[: self.start] + json.dumps(model) + self.text[self.end :]).encode()


def _members(text: str) -> Iterable[tuple[str, object, int, int]]:
    """Each member of a JSON object: its name, its value, and where that begins and ends."""
    at = _after(text, _space(text, 0), "{")
    if text[at : at + 1] == "}":
        at += 1
    else:
        more = True
        while more:
            name, at = scanstring(text, _after(text, at, '"', skip=False))
            begin = _after(text, _space(text, at), ":")
            value, end = DECODER.raw_decode(text, begin)
            yield name, value, begin, end
            at = _space(text, end)
            more = text[at : at + 1] == ","
            at = _after(text, at, "," if more else "}")
    if at != len(text):
        raise JSONDecodeError("Extra data", text, at)


def _after(text: str, at: int, wanted: str, *, skip: bool = True) -> int:
    """The place behind a character that has to be there, and behind the space that follows it."""
    if text[at : at + 1] != wanted:
        raise JSONDecodeError(f"Expecting {wanted!r}", text, at)
    return _space(text, at + 1) if skip else at + 1


def _space(text: str, at: int) -> int:
    found = JSON_SPACE.match(text, at)
    assert found is not None, "it matches nothing, too"
    return found.end()
