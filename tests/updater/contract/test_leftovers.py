"""What killed writers leave goes, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from journeyman_updater.contract import temporary_name, write_durably
from journeyman_updater.contract.leftovers import PATTERN, sweep
from tests.support.killed_writer import kill_a_writer_of


@pytest.mark.slow
def test_what_a_killed_writer_has_left_is_swept(tmp_path: Path) -> None:
    """The file that never got its name goes; the one that has it stays."""
    path = tmp_path / "node.json"
    write_durably(path, b"{}")
    left = kill_a_writer_of(path)
    assert sweep(tmp_path.glob(PATTERN)) == [left]
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_lives_is_left_alone(tmp_path: Path) -> None:
    """What is being written now, by us or by anybody else, would be missed at its rename."""
    ours = tmp_path / temporary_name("node.json")
    theirs = tmp_path / temporary_name("node.json").replace(f".{os.getpid()}-", ".1-")
    for path in (ours, theirs):
        path.touch()
    assert sweep(tmp_path.glob(PATTERN)) == []
    assert {ours, theirs} == set(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name",
    [
        ".state.json.tmp",
        ".a.4194304-0123456789abcdef.tmpx",
        "a.4194305-0123456789abcdef.tmp",
        f".a.{9**30}-0123456789abcdef.tmp",
    ],
)
def test_what_we_have_not_made_stays(tmp_path: Path, name: str) -> None:
    """Names of others, and numbers that are no process, are nobody's leftovers."""
    path = tmp_path / name
    path.touch()
    assert sweep([path]) == []
    assert path.exists()


def test_what_cannot_be_removed_is_no_error(tmp_path: Path) -> None:
    """A folder of that name, or a file that has gone meanwhile, stops nobody's start."""
    name = ".a.4194305-0123456789abcdef.tmp"
    (tmp_path / name).mkdir()
    assert sweep([tmp_path / name, tmp_path / "gone" / name]) == []
