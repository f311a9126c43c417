"""The settings of the agent: one frozen, typed object, built once at the edge.

Importing this reads nothing; only `load_settings` reads a source.
"""

from journeyman.settings.inference import Inference
from journeyman.settings.model import Settings
from journeyman.settings.sources import (
    SYSTEM_ROOT,
    Loaded,
    Origin,
    config_file_of,
    default_state_root,
    load_settings,
    own_state_root,
)

__all__ = [
    "SYSTEM_ROOT",
    "Inference",
    "Loaded",
    "Origin",
    "Settings",
    "config_file_of",
    "default_state_root",
    "load_settings",
    "own_state_root",
]
