"""What the agent tells its proxy arrives as it was meant."""

from __future__ import annotations

import pytest

from journeyman.core.proxy.config import Keys, ProxyConfig
from journeyman.core.proxy.reach import Reach


@pytest.mark.parametrize("reach", [None, Reach("10.0.0.7", 6482, ("10.0.0.0/8",), has_key=False)])
def test_a_configuration_survives_its_file(reach: Reach | None) -> None:
    """Field by field, with a door to other machines or without."""
    config = ProxyConfig(port=7, hold_seconds=1.5, reach=reach)
    assert ProxyConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("data", [b"[]", b'{"ports": 1}', b'{"reach": {}}', b'{"reach": 1}', b"{"])
def test_what_is_no_configuration_is_refused(data: bytes) -> None:
    """One error, whatever is wrong with it."""
    with pytest.raises(ValueError, match=r"proxy|JSON|Expecting"):
        ProxyConfig.from_json(data)


def test_another_key_at_either_door_is_another_configuration() -> None:
    """Keys do not run into each other, either."""
    pairs = [(b"a", b""), (b"a", b"b"), (b"", b"ab"), (b"b", b"a"), (b"ab", b"")]
    assert len({Keys(*pair).digest() for pair in pairs}) == len(pairs)
