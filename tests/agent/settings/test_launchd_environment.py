"""The agent starts with what its property list puts into the environment."""

from __future__ import annotations

import plistlib
from pathlib import Path

import pytest

from journeyman.settings.sources import load_settings

LISTS = sorted((Path(__file__).resolve().parents[3] / "launchd").glob("*/dev.journeyman.agent.plist"))


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.parent.name)
def test_no_variable_of_the_list_is_taken_for_a_setting(path: Path, tmp_path: Path) -> None:
    """A variable of our prefix that is no setting would keep the agent from starting."""
    environ = plistlib.loads(path.read_bytes())["EnvironmentVariables"]
    loaded = load_settings({"state_root": str(tmp_path)}, environ)
    assert loaded.settings.state_root == tmp_path


def test_there_is_a_list_for_each_domain() -> None:
    """The test above looks at something."""
    assert [path.parent.name for path in LISTS] == ["gui", "system", "user"]
