"""Where a model comes from: what a person may write for `journeyman models pull`, and which files that names.

    https://HOST/path/MODEL.gguf            a URL; http only to this machine or to hosts that were allowed
    hf://OWNER/REPO[@REVISION]/path/MODEL.gguf   a file of a model hub, as its own tools spell it
    hf://OWNER/REPO[@REVISION]/             of a repository all that a runtime for folders needs, as MLX is
    file:///path/MODEL.gguf                 a file of this host, which is copied; file:///path/ a folder

A model that was split is named by any of its parts, as llama.cpp names them: `X-00001-of-00003.gguf`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, unquote, urlsplit

from journeyman.errors import UsageError

HUB_SCHEME, FILE_SCHEME = "hf", "file"
SCHEMES = (f"{HUB_SCHEME}://", f"{FILE_SCHEME}://", "https://", "http://")
SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.ASCII)
MOST_PARTS = 999
MAIN = "main"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HUB_PATH = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[^/]+))?/(?P<file>.*)", re.ASCII)


class Form(StrEnum):
    """What a file is, and so how it is judged."""

    GGUF = "gguf"
    SAFETENSORS = "safetensors"
    DATA = "data"


@dataclass(frozen=True)
class Part:
    """One file of a model.

    Attributes:
        url: where it lies; of the schemes `https`, `http` and `file`.
        file_name: the last part of its path.
        sha256: what it must have, in lower-case hex; empty for unknown.
        git_sha1: the same of a file that a hub keeps in git: that of git's blob; empty for unknown.
        size_bytes: how long it must be; None for unknown.
        form: what it is.
    """

    url: str
    file_name: str
    sha256: str = ""
    git_sha1: str = ""
    size_bytes: int | None = None
    form: Form = Form.GGUF

    @property
    def key(self) -> str:
        """What it is called while it grows: by its content, where that is told, and so the same for all."""
        by_url = f"url-{hashlib.sha256(self.url.encode()).hexdigest()}"
        return self.sha256 or (f"git-{self.git_sha1}" if self.git_sha1 else by_url)


@dataclass(frozen=True)
class Source:
    """All files of one model.

    Attributes:
        text: what the person wrote, under which the model is found again.
        parts: its files in their order; one unless it was split, and none of a folder, which is listed first.
        is_hub: whether the server is a model hub, which tells digests beforehand.
        repository: of a folder on a hub, OWNER/REPO.
        revision: of that: a commit, a branch or a tag.
    """

    text: str
    parts: tuple[Part, ...]
    is_hub: bool = False
    repository: str = ""
    revision: str = ""

    @property
    def stem(self) -> str:
        """The name of the file, without what every such file has; or that of the folder."""
        if self.parts:
            return stem_of(self.parts[0].file_name)
        return unquote(self.text.partition("@")[0].rstrip("/").rpartition("/")[2])


def is_source(text: str) -> bool:
    """Whether it is a URL rather than a name or a path."""
    return text.lower().startswith(SCHEMES)


def is_folder(text: str) -> bool:
    """Whether it names a model that is a folder, such as one for MLX, rather than a file."""
    return text.endswith("/") and text.partition("://")[0].lower() in {HUB_SCHEME, FILE_SCHEME}


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
    if is_folder(text):
        return _folder(text, rest, is_hub=is_hub, digests=digests)
    first = _hub_file(rest, text, hub_url) if is_hub else text
    try:
        name = unquote(urlsplit(first).path.rpartition("/")[2])
    except ValueError as error:
        raise UsageError(f"{text!r} is no URL: {error}") from error
    if not name.endswith(".gguf"):
        raise UsageError(
            f"{text!r} names no .gguf file",
            "Give the URL of the file itself, or hf://OWNER/REPO/ for a whole model for MLX.",
        )
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


def _folder(text: str, rest: str, *, is_hub: bool, digests: Sequence[str]) -> Source:
    if digests:
        raise UsageError(f"{text!r} is a folder, which has no --sha256", "Pin it with @COMMIT in its place.")
    if not is_hub:
        return Source(text, ())
    match = _hub_match(rest, text)
    if match["file"]:
        raise UsageError(f"{text!r} is a folder within a repository", "Write hf://OWNER/REPO/.")
    return Source(text, (), is_hub=True, repository=match["repo"], revision=match["revision"] or MAIN)


def _hub_match(rest: str, text: str) -> re.Match[str]:
    match = _HUB_PATH.fullmatch(rest)
    if match is None:
        raise UsageError(
            f"{text!r} is neither a file nor a repository of a model hub",
            "Write hf://OWNER/REPO/FILE.gguf, or hf://OWNER/REPO/ for a whole model.",
        )
    return match


def _hub_file(rest: str, text: str, hub_url: str) -> str:
    match = _hub_match(rest, text)
    return hub_file_url(hub_url, match["repo"], match["revision"] or MAIN, match["file"])


def hub_file_url(hub_url: str, repository: str, revision: str, path: str) -> str:
    """Where a hub serves a file of a repository."""
    return f"{hub_url}/{repository}/resolve/{quote(revision, safe='')}/{quote(path)}"


def _sibling(url: str, name: str, sibling: str) -> str:
    """The URL of another part of the same model; a query stays, as some servers want it."""
    if sibling == name:
        return url
    head, _, tail = url.rpartition(quote(name))
    return f"{head}{quote(sibling)}{tail}"
