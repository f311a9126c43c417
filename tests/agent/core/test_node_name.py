"""A node's name is valid, stays, and is not shared by clones."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.node_name import (
    IdentityChange,
    NodeIdentity,
    checked_name,
    generated_name,
    identify,
    sanitised,
)
from journeyman.errors import ConfigError

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@pytest.mark.parametrize(
    ("hostname", "expected"),
    [
        ("Mac-Studio.local", "mac-studio-local"),
        ("--a__b--", "a-b"),
        ("localhost", "localhost"),
        ("Zoë's Mac", "zo-s-mac"),
        ("", "fleetnode"),
        ("日本", "fleetnode"),
        ("a" * 62 + ".b", "a" * 62),
    ],
)
def test_host_names_become_node_names_as_in_foreman_agent(hostname: str, expected: str) -> None:
    """Lower case, other characters to hyphens, trimmed, at most 63."""
    assert sanitised(hostname) == expected


@given(st.text(max_size=200), st.text(alphabet="0123456789abcdef", min_size=32, max_size=32))
def test_every_generated_name_is_a_label(hostname: str, instance: str) -> None:
    """Whatever the host is called, the API server accepts the name."""
    name = generated_name(hostname, instance)
    assert LABEL.fullmatch(name)
    assert len(name) <= 63
    assert checked_name(name) == name


def test_two_hosts_of_one_name_get_two_nodes() -> None:
    """`localhost` is not one machine."""
    first, change = identify(None, "localhost", {}, "1" * 32)
    second, _ = identify(None, "localhost", {}, "2" * 32)
    assert change is IdentityChange.FIRST
    assert first.node_name != second.node_name


def test_a_name_survives_a_new_host_name() -> None:
    """A Mac's host name changes with the network; its FleetNode does not."""
    first, _ = identify(None, "mac", {"machine-id": "m"}, "1" * 32)
    again, change = identify(first, "mac-2", {"machine-id": "m"}, "2" * 32)
    assert change is IdentityChange.KEPT
    assert again == first


def test_a_copied_state_root_is_another_node() -> None:
    """A fact that differs shows a clone: new instance, new name."""
    first, _ = identify(None, "pi", {"machine-id": "m", "board-serial": "1"}, "1" * 32)
    clone, change = identify(first, "pi", {"machine-id": "m", "board-serial": "2"}, "2" * 32)
    assert change is IdentityChange.CLONED
    assert clone.instance == "2" * 32
    assert clone.node_name != first.node_name


def test_a_fact_that_one_side_lacks_proves_nothing() -> None:
    """Facts that only root can read come and go; new ones are remembered."""
    first, _ = identify(None, "pi", {"machine-id": "m"}, "1" * 32)
    as_root, change = identify(first, "pi", {"machine-id": "m", "product-uuid": "u"}, "2" * 32)
    assert change is IdentityChange.KEPT
    assert as_root.machine_facts.keys() == {"machine-id", "product-uuid"}
    as_user, change = identify(as_root, "pi", {"machine-id": "m"}, "3" * 32)
    assert change is IdentityChange.KEPT
    assert as_user == as_root


def test_raw_machine_ids_are_not_stored() -> None:
    """machine-id(5) asks to keep the id itself confidential."""
    identity, _ = identify(None, "pi", {"machine-id": "d34db33f"}, "1" * 32)
    assert "d34db33f" not in str(identity.to_json())


def test_an_identity_survives_its_json() -> None:
    """What is written is read again."""
    identity, _ = identify(None, "pi", {"machine-id": "m"}, "1" * 32)
    assert NodeIdentity.from_json(identity.to_json()) == identity


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"format": 2, "instance": "a", "nodeName": "a", "machineFacts": {}},
        {"format": 1, "instance": "", "nodeName": "a", "machineFacts": {}},
        {"format": 1, "instance": "a", "nodeName": "Not Valid", "machineFacts": {}},
        {"format": 1, "instance": "a", "nodeName": "a", "machineFacts": []},
    ],
)
def test_what_is_no_identity_is_none(value: dict[str, object]) -> None:
    """A strange document leads to a new identity, not to a crash."""
    assert NodeIdentity.from_json(value) is None


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a-", "a.b", "a" * 64, "a\n"])
def test_a_chosen_name_must_be_a_label(name: str) -> None:
    """It is used as it is, or refused."""
    with pytest.raises(ConfigError):
        checked_name(name)
