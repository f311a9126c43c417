"""Keys of this host's own, made once and kept: what the clients of the proxy have to show."""

from __future__ import annotations

import secrets
from pathlib import Path

from journeyman.core.proxy.config import Keys
from journeyman.core.proxy.reach import Reach
from journeyman.errors import HostError
from journeyman_updater.contract import StateRoot, write_durably


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


def keys_of(root: StateRoot, reach: Reach | None) -> Keys:
    """What the clients of the proxy have to show, those on other machines only where there may be any.

    Raises:
        HostError: as `established_key` does.
    """
    elsewhere = established_key(root.reach_key_file) if reach is not None and reach.has_key else b""
    return Keys(established_key(root.proxy_key_file), elsewhere)
