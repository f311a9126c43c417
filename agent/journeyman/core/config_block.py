"""The lines of `config.toml` that `journeyman join` has written: put in, found, and taken away again.

They come first, as TOML's top-level keys have to, and between two comments; the rest is a person's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

BEGIN = "# Written by `journeyman join`; `journeyman leave` takes it away."
END = "# End of what `journeyman join` has written."

Value = str | bool | Sequence[str] | Mapping[str, str]


def has_block(text: str) -> bool:
    """Whether the file holds such lines."""
    return BEGIN in text.splitlines()


def with_block(text: str, values: Mapping[str, Value]) -> str:
    """The file with these settings before the rest, in place of earlier ones of the same origin.

    Args:
        text: the file as it is.
        values: settings by name; the rest of the file must not set them.
    """
    lines = [f"{name} = {_written(value)}" for name, value in values.items()]
    rest = without_block(text)
    return "\n".join([BEGIN, *lines, END, *([rest] if rest else [""])])


def without_block(text: str) -> str:
    """The file without these lines; as it is if it has none."""
    lines = text.splitlines(keepends=True)
    bare = [line.strip() for line in lines]
    if BEGIN not in bare or END not in bare:
        return text
    return "".join(lines[: bare.index(BEGIN)] + lines[bare.index(END) + 1 :])


def _written(value: Value) -> str:
    # Texts, truth values and lists of texts are written alike in JSON and TOML; tables are not.
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{json.dumps(key)} = {json.dumps(each)}" for key, each in value.items())
        return f"{{ {pairs} }}"
    return json.dumps(value if isinstance(value, str | bool) else list(value), ensure_ascii=False)
