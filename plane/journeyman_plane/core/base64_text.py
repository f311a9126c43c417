"""Base64 as the `byte` format of Kubernetes has it: the standard alphabet, padded."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any


def is_base64(text: str) -> bool:
    """Whether the text is base64."""
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def with_encoded_strings(secret: Mapping[str, Any]) -> dict[str, Any]:
    """A Secret whose write-only `stringData` has been merged into `data`, as an API server stores it.

    Where either is of the wrong type the Secret is left as it is, for its schema to say so.
    """
    result = dict(secret)
    texts, data = result.get("stringData"), result.get("data") or {}
    if (
        isinstance(texts, Mapping)
        and isinstance(data, Mapping)
        and all(isinstance(t, str) for t in texts.values())
    ):
        del result["stringData"]
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        result["data"] = {**data, **encoded}
    return result
