"""What a model hub tells of a repository, by the documented API of huggingface.co, which mirrors follow.

    GET /api/models/OWNER/REPO/revision/REVISION     {"sha": "<commit>", ...}
    GET /api/models/OWNER/REPO/tree/COMMIT             [{"type", "path", "oid", "size", "lfs"?}], in pages

https://huggingface.co/docs/hub/api, and `list_repo_tree` of the library huggingface_hub.  A hub is not
believed in anything that decides where a byte is written, or how many come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from journeyman.core import folder_model
from journeyman.core.model_source import Form, Part, Source, hub_file_url
from journeyman.errors import DownloadError

COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
MOST_FILES = 20_000


def commit_url(hub_url: str, source: Source) -> str:
    """Where a hub says which commit a branch or a tag means now."""
    return f"{hub_url}/api/models/{source.repository}/revision/{quote(source.revision, safe='')}"


def tree_url(hub_url: str, source: Source, commit: str) -> str:
    """Where a hub lists the files at the top of a repository."""
    return f"{hub_url}/api/models/{source.repository}/tree/{commit}"


def read_commit(answer: Any, source: Source) -> str:
    """The commit in the answer to `commit_url`.  Raises DownloadError if there is none."""
    commit = answer.get("sha") if isinstance(answer, Mapping) else None
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise DownloadError(f"the hub names no commit for {source.text}", "Check model_hub_url.")
    return commit


def read_tree(answers: Sequence[Any], source: Source, commit: str, hub_url: str) -> tuple[Part, ...]:
    """The files that a runtime needs, in the pages of the answer to `tree_url`.

    Raises:
        DownloadError: they cannot be read, or name a place outside of the repository.
        ModelError: something is missing of the model.
    """
    try:
        entries = [(str(one["type"]), str(one["path"]), one) for page in answers for one in page]
        files = {path: one for kind, path, one in entries if kind == "file"}
        _check_paths([path for _, path, _ in entries])
        names = folder_model.chosen(files)
        folder_model.check_chosen(names, source.text)
        url_of = partial(hub_file_url, hub_url, source.repository, commit)
        parts = [_part(files[name], name, url_of(name)) for name in names]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise DownloadError(
            f"the hub's list of {source.text} cannot be read: {error}", "Check model_hub_url."
        ) from error
    # What is small comes, and is judged, before what is large.
    return tuple(sorted(parts, key=lambda part: (part.form is Form.SAFETENSORS, part.key)))


def _check_paths(paths: Sequence[str]) -> None:
    """Nothing is written where a name leads, but a hub that tries is none to take a model from."""
    if len(paths) > MOST_FILES:
        raise ValueError(f"{len(paths)} files")
    for path in paths:
        if {"", ".", ".."} & {*path.split("/")} or "\\" in path or not path.isprintable():
            raise ValueError(f"the name {path[:200]!r} leads elsewhere")


def _part(told: Mapping[str, Any], name: str, url: str) -> Part:
    form = Form.SAFETENSORS if folder_model.is_weights(name) else Form.DATA
    stored = told.get("lfs")
    digest, size = (told["oid"], told["size"]) if stored is None else (stored["oid"], stored["size"])
    kind = COMMIT if stored is None else _SHA256
    if not isinstance(digest, str) or not kind.fullmatch(digest) or type(size) is not int or size < 0:
        raise ValueError(f"{name} has no digest or no size")
    if form is Form.DATA and size > folder_model.LARGEST_DATA_BYTES:
        raise ValueError(f"{name} has {size} bytes")
    sha256, git_sha1 = ("", digest) if stored is None else (digest, "")
    return Part(url, name, sha256=sha256, git_sha1=git_sha1, size_bytes=size, form=form)
