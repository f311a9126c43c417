"""The setting that says who starts the guard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from journeyman_updater.adapters.service.choice import service_manager
from journeyman_updater.adapters.service.launchd import LaunchdServiceManager
from journeyman_updater.adapters.service.none import ParentServiceManager
from journeyman_updater.adapters.service.runit import RunitServiceManager
from journeyman_updater.adapters.service.systemd import SystemdServiceManager
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot
from journeyman_updater.settings import SERVICES, Settings

ADAPTERS = {
    "none": ParentServiceManager,
    "systemd": SystemdServiceManager,
    "systemd-user": SystemdServiceManager,
    "runit": RunitServiceManager,
    "launchd": LaunchdServiceManager,
    "launchd-gui": LaunchdServiceManager,
    "launchd-user": LaunchdServiceManager,
    "termux": ParentServiceManager,
}


def test_each_service_has_its_adapter(tmp_path: Path) -> None:
    """Every value of the setting leads to one adapter, and no adapter is without a value."""
    assert set(ADAPTERS) == set(SERVICES)
    for name, adapter in ADAPTERS.items():
        made = service_manager(name, StateRoot(tmp_path), SystemClock(), stop_seconds=1)
        assert type(made) is adapter


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ({"service": "upstart"}, "service has to be one of none, systemd, systemd-user, runit"),
        ({"service": 3}, "service has to be one of"),
        ({"service_folder": ["/var/service"]}, "service_folder has to be a text"),
    ],
)
def test_a_wrong_service_is_named(tmp_path: Path, found: dict[str, object], complaint: str) -> None:
    """One line says which setting is wrong and what it may be."""
    file = tmp_path / "updater.json"
    file.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=complaint):
        Settings.load(file)
