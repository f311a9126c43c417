"""Which process it is, in words that do not depend on who asks."""

from __future__ import annotations

import pytest

from journeyman_updater.contract import process_table


def test_tools_speak_one_language_in_one_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent without a login and a person in a terminal must read the same start time from `ps`."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    assert set(process_table._output_of("/usr/bin/env").splitlines()) == {"LC_ALL=C", "TZ=UTC"}
