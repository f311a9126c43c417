"""A key of this host's own, made once and kept: what the clients of the proxy have to show."""

from __future__ import annotations

import secrets
from pathlib import Path

from journeyman.errors import HostError
from journeyman_updater.contract import write_durably


def established_key(path: Path) -> bytes:
    """The key in a file, which is made where there is none; people may put one of their own there.

    Raises:
        HostError: it is empty, cannot be read, or cannot be made.
    """
    try:
        key = path.read_bytes().strip()
    except FileNotFoundError:
        key = secrets.token_urlsafe(32).encode()
        try:
            write_durably(path, key + b"\n")
        except OSError as error:
            raise HostError(f"cannot write {path}: {error.strerror}", "Free some space.") from error
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}", "Mend its permissions.") from error
    if not key or len(key.split()) > 1:
        raise HostError(f"{path} holds no key", "Put one word there, or delete it: a new one is made.")
    return key
