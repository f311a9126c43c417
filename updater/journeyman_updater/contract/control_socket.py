"""Where the agent of a state root listens: in the root, or where an installation has put it.

`/run/journeyman` is for whoever is in the agent's group.  macOS has no such folder that outlives a boot, and
its users share one group.
"""

from __future__ import annotations

import json
import os

from journeyman_updater.contract import names

SHARED_FOLDER = "/run/journeyman"


def control_socket_of(root: str) -> str:
    """The path of the socket; never raises, as that nobody listens shows soon enough.

    Args:
        root: the path of the state root.
    """
    try:
        with open(os.path.join(root, names.INSTALLATION_FILE), "rb") as file:
            is_shared = json.loads(file.read())["shares_socket"] is True
    except (OSError, ValueError, KeyError, TypeError):
        is_shared = False
    folder = SHARED_FOLDER if is_shared else os.path.join(root, names.RUN)
    return os.path.join(folder, names.CONTROL_SOCKET)
