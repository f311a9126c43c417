"""docs/settings.md lists exactly what can be set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from journeyman.settings import Settings
from tests.support.settings_table import settings_table

DOCS = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


def test_the_docs_list_every_setting_with_its_default() -> None:
    """The table in the docs is the one that `python -m tests.support.settings_table` prints."""
    assert settings_table() in DOCS.read_text()


def test_every_time_has_its_unit_in_its_name() -> None:
    """A float is a number of seconds or a fraction, and says so."""
    floats = [name for name, field in Settings.model_fields.items() if field.annotation is float]
    assert floats
    assert all(name.endswith(("_seconds", "_fraction")) for name in floats)


def test_every_setting_is_described() -> None:
    """A description is a sentence."""
    assert all((field.description or "").endswith(".") for field in Settings.model_fields.values())


def test_constructing_settings_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `load_settings` asks other sources than the arguments."""
    monkeypatch.setenv("JOURNEYMAN_NAMESPACE", "elsewhere")
    assert Settings(state_root=Path("/node")).namespace == "default"


def test_no_settings_let_the_token_cross_a_network_in_the_clear() -> None:
    """Whoever holds settings may use the server in them; http to another machine has to be allowed."""
    with pytest.raises(ValidationError, match="in the clear"):
        Settings(state_root=Path("/node"), server="http://192.0.2.1")
    allowed = Settings(state_root=Path("/node"), server="http://192.0.2.1/", allow_insecure_http=True)
    assert allowed.server == "http://192.0.2.1"


def test_importing_settings_loads_neither_httpx_nor_rich() -> None:
    """The agent's start has a budget, and settings are its first step."""
    script = "import sys, journeyman.settings; print("
    script += "{'httpx', 'rich', 'structlog'} & set(sys.modules))"
    heavy = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert heavy.stdout.strip() == "set()"
