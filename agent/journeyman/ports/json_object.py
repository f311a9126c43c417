"""The type of a JSON object."""

from typing import Any

JsonObject = dict[str, Any]
