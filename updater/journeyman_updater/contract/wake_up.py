"""How the agent may wake the updater at once, beside touching `StateRoot.wake_up_file`."""

from __future__ import annotations

UPDATER_JOB = "JOURNEYMAN_UPDATER_JOB"
"""The variable that names launchd's job of the updater, `gui/501/LABEL`; set where the agent may start it."""
