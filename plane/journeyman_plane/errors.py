"""Errors that only an API server raises, beside those of `journeyman.errors`."""

from __future__ import annotations

from dataclasses import dataclass

from journeyman.errors import ControlPlaneError, InvalidError


class RequestError(ControlPlaneError):
    """A request that no handler can serve: its `status` and `reason` say which rule it breaks."""


@dataclass(frozen=True)
class Cause:
    """One field that breaks its schema, as in the `details.causes` of a Kubernetes Status.

    Attributes:
        field: the path of the field, such as `status.phase`.
        reason: one of the FieldValue... words of Kubernetes.
        message: what is wrong with it.
    """

    field: str
    reason: str
    message: str


class SchemaError(InvalidError):
    """An object breaks its schema; every broken field is named.

    Args:
        kind: the kind of the object.
        group: its API group, empty for the core group.
        name: its name, empty if it has none.
        causes: the broken fields, at least one.
    """

    def __init__(self, kind: str, group: str, name: str, causes: list[Cause]) -> None:
        lines = [f"{cause.field}: {cause.message}" for cause in causes]
        listed = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
        qualified = f"{kind}.{group}" if group else kind
        super().__init__(f'{qualified} "{name}" is invalid: {listed}', status=422, reason="Invalid")
        self.kind = kind
        self.name = name
        self.causes = causes
