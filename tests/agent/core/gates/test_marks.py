"""Marks as settings, and as the docs show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from journeyman.core.gates.host_class import HostClass, HostFacts, host_class
from journeyman.core.gates.marks import Marks, marks_from
from journeyman.errors import ConfigError

DOCS = Path(__file__).resolve().parents[4] / "docs" / "gates.md"
UNITS = ("_celsius", "_percent", "_seconds", "_bytes", "_level", "_processes")


def marks(model: type[BaseModel] = Marks, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every mark with its dotted name."""
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from marks(type(field.default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def row(name: str, field: FieldInfo) -> str:
    """The line of the docs for one mark."""
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    default = str(field.default).lower() if isinstance(field.default, bool | str) else f"{field.default:,}"
    return f"| `{name}` | {default} | {field.description} | {extra['source']} |"


@pytest.mark.parametrize(("name", "field"), list(marks()))
def test_every_mark_has_a_unit_and_stands_in_the_docs(name: str, field: FieldInfo) -> None:
    """With its default, what it does, and where the default comes from."""
    assert name.endswith(UNITS) or isinstance(field.default, bool | str)
    assert row(name, field) in DOCS.read_text().splitlines()


def test_marks_are_frozen_and_know_no_other_names() -> None:
    """A typo is an error that names the key, never a default."""
    with pytest.raises(ValidationError):
        Marks().tick_idle_seconds = 1  # type: ignore[misc]
    with pytest.raises(ConfigError, match=r"config: thermal\.hold_celcius"):
        marks_from({"thermal": {"hold_celcius": 80}}, "config")


def test_a_person_may_overrule_the_class_of_a_host() -> None:
    """By one of the names, and by nothing else."""
    assert host_class(HostFacts(battery=True), "linux-server") is HostClass.LINUX_SERVER
    with pytest.raises(ConfigError, match="toaster"):
        host_class(HostFacts(), "toaster")
