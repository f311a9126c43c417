"""Files of the running agent that others read: replaced as a whole, and not synced, as a boot ends them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from journeyman.errors import HostError
from journeyman_updater.contract import temporary_name


def write_run_file(path: Path, value: Mapping[str, Any], *, mode: int = 0o644) -> None:
    """Replaces the file, so that a reader sees the old or the new object and never a part.

    Raises:
        HostError: it cannot be written; the old one is still there.
    """
    temporary = path.with_name(temporary_name(path.name))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_text(json.dumps(value), encoding="utf-8")
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise HostError(f"cannot write {path}: {error.strerror}", "Mend its folder's permissions.") from error
