"""What the tree of a release has beside its libraries: the entry point, bytecode, and the manifest."""

from __future__ import annotations

import compileall
import hashlib
import py_compile
from collections.abc import Sequence
from pathlib import Path

from journeyman_updater.model.manifest import ENTRY_POINT, ManifestFile
from journeyman_updater.model.release import Sha256

_ENTRY_POINT = "entry_point.sh"


def finish(tree: Path, pythons: Sequence[str]) -> None:
    """Compiles `lib/` and writes the entry point.

    Args:
        tree: with its `lib/`.
        pythons: that it runs on, such as `3.11`; the first one is this one, whose bytecode is shipped, as
            hosts with the same one then start fast.
    """
    compileall.compile_dir(
        tree / "lib",
        quiet=1,
        stripdir=str(tree),
        # The tree never changes, so no start has to compare it with its sources.
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    path = tree / ENTRY_POINT
    path.parent.mkdir()
    text = Path(__file__).with_name(_ENTRY_POINT).read_text()
    values = {"@COMPILED@": pythons[0], "@SUPPORTED@": " ".join(pythons)}
    for name, value in values.items():
        text = text.replace(name, value)
    path.write_text(text)
    path.chmod(0o755)


def describe(tree: Path) -> dict[str, ManifestFile]:
    """The files of a tree, as its manifest lists them."""
    return {
        path.relative_to(tree).as_posix(): ManifestFile(
            sha256=sha256_of(path),
            size=path.stat().st_size,
            executable=bool(path.stat().st_mode & 0o111),
        )
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }


def sha256_of(path: Path) -> Sha256:
    """The digest of a file's content."""
    with path.open("rb") as file:
        return Sha256(hashlib.file_digest(file, "sha256").hexdigest())
