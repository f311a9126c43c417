"""Names below the state root that are needed before anything else is loaded; `layout.py` has them all."""

from __future__ import annotations

CONFIG_FILE = "config.toml"
INSTALLATION_FILE = "install.json"
RUN = "run"
CONTROL_SOCKET = "agent.sock"
