"""The tables of docs/settings.md; `python -m tests.support.settings_table` prints them to paste."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from journeyman.settings import Inference, Settings


def settings_table() -> str:
    """Every setting in the order of the model, with its default and its description."""
    return _table("setting", Settings)


def inference_table() -> str:
    """Every key of an `[[inference]]` table."""
    return _table("key", Inference)


def _table(head: str, model: type[BaseModel]) -> str:
    lines = [f"| {head} | default | what it is |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        default = (
            "see above" if field.is_required() else _spelled(field.get_default(call_default_factory=True))
        )
        lines.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def _spelled(value: Any) -> str:
    if value is None or value in ((), {}, ""):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    print(settings_table(), inference_table(), sep="\n", end="")  # noqa: T201
