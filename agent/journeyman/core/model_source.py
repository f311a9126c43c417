"""Where a model comes from: what a person may write for `journeyman models pull`, and which files that names.

    https://HOST/path/MODEL.gguf            a URL; http only to this machine or to hosts that were allowed
    hf://OWNER/REPO[@REVISION]/path/MODEL.gguf   a file of a model hub, as its own tools spell it
    file:///path/MODEL.gguf                 a file of this host, which is copied

A model that was split is named by any of its parts, as llama.cpp names them: `X-00001-of-00003.gguf`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from journeyman.errors import UsageError

HUB_SCHEME, FILE_SCHEME = "hf", "file"
SCHEMES = (f"{HUB_SCHEME}://", f"{FILE_SCHEME}://", "https://", "http://")
SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.ASCII)
MOST_PARTS = 999
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HUB_PATH = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?/(?P<file>.+)", re.ASCII)


@dataclass(frozen=True)
class Part:
    """One file of a model.

    Attributes:
        url: where it lies; of the schemes `https`, `http` and `file`.
        file_name: the last part of its path.
        sha256: what it must have, in lower-case hex; empty for unknown.
    """

    url: str
    file_name: str
    sha256: str = ""


@dataclass(frozen=True)
class Source:
    """All files of one model.

    Attributes:
        text: what the person wrote, under which the model is found again.
        parts: its files in their order; one unless it was split.
        is_hub: whether the server is a model hub, which tells digests beforehand.
    """

    text: str
    parts: tuple[Part, ...]
    is_hub: bool = False

    @property
    def stem(self) -> str:
        """The name of the file, without what every such file has."""
        return stem_of(self.parts[0].file_name)


def is_source(text: str) -> bool:
    """Whether it is a URL rather than a name or a path."""
    return text.lower().startswith(SCHEMES)


def read_source(text: str, *, hub_url: str, digests: Sequence[str] = ()) -> Source:
    """Reads what a person wrote.

    Args:
        text: see the head of this module.
        hub_url: where `hf://` leads, without a slash at its end.
        digests: SHA-256 of each file in lower-case hex, if the person knows them.

    Raises:
        UsageError: it is no such source, or the digests are not those of its files.
    """
    scheme, _, rest = text.partition("://")
    is_hub = scheme.lower() == HUB_SCHEME
    first = _hub_file(rest, text, hub_url) if is_hub else text
    try:
        name = unquote(urlsplit(first).path.rpartition("/")[2])
    except ValueError as error:
        raise UsageError(f"{text!r} is no URL: {error}") from error
    if not name.endswith(".gguf"):
        raise UsageError(f"{text!r} names no .gguf file", "Give the URL of the file itself.")
    names = split_names(name) or (name,)
    if digests and (len(digests) != len(names) or not all(map(_SHA256.fullmatch, digests))):
        raise UsageError(
            f"{len(digests)} digests for {len(names)} files",
            "Give --sha256 once for each part, 64 lower-case hex digits, in the order of the parts.",
        )
    known = digests or [""] * len(names)
    found = zip(names, known, strict=True)
    parts = tuple(Part(_sibling(first, name, one), one, sha256) for one, sha256 in found)
    return Source(text, parts, is_hub or first.startswith(f"{hub_url}/"))


def split_names(file_name: str) -> tuple[str, ...]:
    """The names of all parts of a model that was split, or nothing for one that was not."""
    match = SPLIT.fullmatch(file_name)
    if match is None or not 1 <= int(match["number"]) <= int(match["count"]) <= MOST_PARTS:
        return ()
    return tuple(
        f"{match['stem']}-{n:05d}-of-{match['count']}.gguf" for n in range(1, int(match["count"]) + 1)
    )


def stem_of(file_name: str) -> str:
    """What a model is called by the name of its file."""
    match = SPLIT.fullmatch(file_name)
    return match["stem"] if match else file_name.removesuffix(".gguf")


def _hub_file(rest: str, text: str, hub_url: str) -> str:
    match = _HUB_PATH.fullmatch(rest)
    if match is None:
        raise UsageError(
            f"{text!r} is no file of a model hub",
            "Write hf://OWNER/REPO/FILE.gguf, or hf://OWNER/REPO@REVISION/...",
        )
    revision = quote(match["revision"] or "main", safe="")
    return f"{hub_url}/{match['repo']}/resolve/{revision}/{quote(match['file'])}"


def _sibling(url: str, name: str, sibling: str) -> str:
    """The URL of another part of the same model; a query stays, as some servers want it."""
    if sibling == name:
        return url
    head, _, tail = url.rpartition(quote(name))
    return f"{head}{quote(sibling)}{tail}"
