"""What writers that were killed have left: files that were never given their name.

Each has a name of its own, see `temporary_name`, so that nothing else would ever write over it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

PATTERN = ".*.tmp"
"""Which files may be such, for `Path.glob`."""
_TEMPORARY = re.compile(r"\..+\.([1-9][0-9]*)-[0-9a-f]{16}\.tmp")


def sweep(candidates: Iterable[Path]) -> list[Path]:
    """Removes the temporary files whose writer no longer lives.

    One whose pid has been given to another process stays until a later sweep, and so does what cannot be
    removed: it is in nobody's way.

    Args:
        candidates: paths to look at; all that `write_durably` has not made is left alone.

    Returns:
        What was removed.
    """
    return [path for path in candidates if _is_left(path.name) and _remove(path)]


def _is_left(name: str) -> bool:
    found = _TEMPORARY.fullmatch(name)
    if found is None:
        return False
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        # It lives and is another user's, or it is the number of no process.
        pass
    return False


def _remove(path: Path) -> bool:
    with contextlib.suppress(OSError):
        path.unlink()
        return True
    return False
