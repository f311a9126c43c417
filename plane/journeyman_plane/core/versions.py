"""When two spellings mean the same version."""

from __future__ import annotations


def same_version(left: str, right: str) -> bool:
    """Whether both name one version: a leading `v` and build metadata (after `+`) say nothing.

    Source: Semantic Versioning 2.0.0, item 10, and the habit of git tags.
    """
    return _canonical(left) == _canonical(right)


def _canonical(version: str) -> str:
    bare = version.strip().partition("+")[0]
    return bare[1:] if bare[:1] in {"v", "V"} and bare[1:2].isdigit() else bare
