"""Being reachable has to be said whole, and a mistake in it is told before anything listens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from journeyman.core.proxy.reach import Reach
from journeyman.errors import ConfigError
from journeyman.settings import Settings, load_settings

SAID = {
    "fleet_services": True,
    "proxy_reach_address": "100.64.0.7",
    "proxy_reach_sources": ["10.0.0.0/8", "100.64.0.0/10"],
}


def settings(**values: Any) -> Settings:
    return Settings(**{"state_root": Path("/node"), **values})


def test_nobody_is_reachable_by_default() -> None:
    """Without an address there is no door."""
    assert settings().reach is None


def test_an_address_and_its_sources_are_a_door_with_a_key() -> None:
    """The key is asked for unless somebody says that it is not."""
    reach = settings(**SAID).reach
    assert reach is not None
    assert (str(reach), reach.sources, reach.has_key) == (
        "100.64.0.7:6482",
        ("10.0.0.0/8", "100.64.0.0/10"),
        True,
    )
    keyless = settings(**SAID, proxy_reach_without_key=True, proxy_reach_port=8080).reach
    assert keyless is not None
    assert (str(keyless), keyless.has_key) == ("100.64.0.7:8080", False)
    assert str(Reach("fd00::7", 6482, ("fd00::/8",))) == "[fd00::7]:6482"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"proxy_reach_address": "0.0.0.0"}, "every address of this host"),
        ({"proxy_reach_address": "::"}, "every address of this host"),
        ({"proxy_reach_address": ""}, "no IP address"),
        ({"proxy_reach_address": "desk.lan"}, "no IP address"),
        ({"proxy_reach_address": "100.64.0.7:80"}, "no IP address"),
        ({"proxy_reach_address": "127.0.0.1"}, "no other machine reaches"),
        ({"proxy_reach_address": "fe80::1"}, "no other machine reaches"),
        ({"proxy_reach_address": "224.0.0.1"}, "no other machine reaches"),
        ({"proxy_reach_sources": []}, "needs the networks of its clients"),
        ({"proxy_reach_sources": ["10.0.0.1/8"]}, "has host bits set"),
        ({"proxy_reach_sources": ["the lab"]}, "write networks like"),
        ({"proxy_reach_sources": ["fd00::/8"]}, "no client of fd00::/8 can connect"),
        ({"proxy_reach_sources": ["0.0.0.0/0"]}, "is everybody"),
        ({"proxy_reach_address": None}, "nobody connects without proxy_reach_address"),
        ({"proxy": False}, "does without one"),
        ({"fleet_services": False}, "set fleet_services"),
    ],
)
def test_half_a_door_and_one_for_everybody_are_refused(values: dict[str, Any], said: str) -> None:
    """One sentence says what is missing or too wide."""
    with pytest.raises(ValidationError, match=said) as raised:
        settings(**SAID | values)
    assert len(raised.value.errors()) == 1


def test_the_environment_spells_sources_as_a_list(tmp_path: Path) -> None:
    """Commas part them, and a mistake names the variable."""
    environ = {
        "JOURNEYMAN_FLEET_SERVICES": "true",
        "JOURNEYMAN_PROXY_REACH_ADDRESS": "10.0.0.7",
        "JOURNEYMAN_PROXY_REACH_SOURCES": "10.1.0.0/16, 10.2.0.0/16",
    }
    flags = {"state_root": tmp_path}
    loaded = load_settings(flags, environ).settings
    assert loaded.proxy_reach_sources == ("10.1.0.0/16", "10.2.0.0/16")
    with pytest.raises(ConfigError, match="JOURNEYMAN_PROXY_REACH_SOURCES"):
        load_settings(flags, environ | {"JOURNEYMAN_PROXY_REACH_SOURCES": "10.1.0.0/8"})
