"""The identity of an installation is durable, and a copy of it is noticed."""

from __future__ import annotations

import json
from pathlib import Path

from structlog.testing import capture_logs

from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.node_identity import HostFacts, establish_identity, read_host_facts


def test_the_identity_of_the_first_start_is_kept(tmp_path: Path) -> None:
    """The second start finds what the first one wrote, whatever the host is called by then."""
    document = JsonFile(tmp_path / "identity.json")
    first = establish_identity(document, HostFacts("localhost", {"machine-id": "m"}))
    assert first.node_name.startswith("localhost-")
    written = (tmp_path / "identity.json").read_bytes()
    assert establish_identity(document, HostFacts("renamed", {"machine-id": "m"})) == first
    assert (tmp_path / "identity.json").read_bytes() == written


def test_a_state_root_copied_to_another_machine_is_noticed_and_logged(tmp_path: Path) -> None:
    """The clone gets a name of its own; the log names both."""
    document = JsonFile(tmp_path / "identity.json")
    first = establish_identity(document, HostFacts("pi", {"board-serial": "1"}))
    with capture_logs() as logs:
        clone = establish_identity(document, HostFacts("pi", {"board-serial": "2"}))
    assert clone.node_name != first.node_name
    (entry,) = logs
    assert entry["event"] == "cloned_state_root_found"
    assert (entry["previous_node_name"], entry["node_name"]) == (first.node_name, clone.node_name)
    assert establish_identity(document, HostFacts("pi", {"board-serial": "2"})) == clone


def test_a_document_that_is_no_identity_is_replaced(tmp_path: Path) -> None:
    """Strange content is no reason not to start."""
    path = tmp_path / "identity.json"
    path.write_text('{"format": 99}')
    identity = establish_identity(JsonFile(path), HostFacts("pi", {}))
    assert json.loads(path.read_text())["instance"] == identity.instance


def test_facts_of_a_linux_machine_come_from_its_files(tmp_path: Path) -> None:
    """What is not there is left out; a device tree's zero byte is cut off."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0123abcd\n")
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/serial-number").write_bytes(b"10000000abcdef\x00")
    facts = read_host_facts(tmp_path, platform="linux")
    assert facts.machine == {"machine-id": "0123abcd", "board-serial": "10000000abcdef"}
    assert facts.hostname


def test_an_empty_machine_id_is_no_fact(tmp_path: Path) -> None:
    """Images ship an empty file; it identifies nobody."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("\n")
    assert read_host_facts(tmp_path, platform="linux").machine == {}
