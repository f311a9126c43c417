"""What every wire type shares: the base classes, times, conditions and object metadata.

Nothing here reads a clock or a network: a time is an argument, and JSON is a `dict` that somebody else
fetched.  Formats are those of Kubernetes (`metav1.ObjectMeta`, `metav1.Condition`, `metav1.Time`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from journeyman.errors import InvalidError

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""A Go `int32` that may not be negative."""

TYPE_PATTERN = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
REASON_PATTERN = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"


def parse_time(text: str) -> datetime:
    """Reads an RFC 3339 time and returns it in UTC at whole seconds, as the wire keeps it.

    Raises:
        ValueError: the text is no time, or names no zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"the time {text!r} names no zone")
    return whole_seconds(moment)


def format_time(moment: datetime) -> str:
    """Writes a time as the wire wants it: whole seconds, UTC, with a trailing `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def whole_seconds(moment: datetime) -> datetime:
    """Cuts a time down to whole seconds of UTC, so that it equals its own echo from the server."""
    return moment.astimezone(UTC).replace(microsecond=0)


def _time_from_wire(value: object) -> datetime:
    if isinstance(value, datetime):
        return whole_seconds(value)
    if isinstance(value, str):
        return parse_time(value)
    raise ValueError("a time is an RFC 3339 string")


WireTime = Annotated[
    datetime, BeforeValidator(_time_from_wire), PlainSerializer(format_time, return_type=str)
]


class WireModel(BaseModel):
    """A frozen value read from or written to the API, by camelCase names; unknown fields are ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        # The wire has fields named modelRef and the like; pydantic would keep that prefix for itself.
        protected_namespaces=(),
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if item is not None}
        return value

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Reads the JSON of an object.

        Raises:
            InvalidError: it breaks the schema; the message names the first field that does.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or cls.__name__
            raise InvalidError(
                f"{cls.__name__}: {field}: {first['msg']}", "correct the object, or update Journeyman"
            ) from error

    def to_wire(self) -> dict[str, Any]:
        """Returns the JSON of exactly those fields that were set; an unset field is not ours to write."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


class ObjectMeta(WireModel):
    """The part of `metadata` that we read or write."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: WireTime | None = None
    deletion_timestamp: WireTime | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class WireObject(WireModel):
    """A whole API object.  Each kind narrows `api_version` and `kind` to its own."""

    api_version: str
    kind: str
    metadata: ObjectMeta

    def to_wire(self) -> dict[str, Any]:
        """Returns the JSON of the object, always with apiVersion and kind."""
        return {"apiVersion": self.api_version, "kind": self.kind} | super().to_wire()


class NameReference(WireModel):
    """A reference by name to an object of the same namespace."""

    name: str = Field(min_length=1)


class ConditionStatus(StrEnum):
    """The three values of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(WireModel):
    """One observation about an object; `type` is its key."""

    type: str = Field(max_length=316, pattern=TYPE_PATTERN)
    status: ConditionStatus
    reason: str = Field(min_length=1, max_length=1024, pattern=REASON_PATTERN)
    message: str = Field(max_length=32768)
    last_transition_time: WireTime
    observed_generation: Annotated[int, Field(ge=0)] | None = None


def find_condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Returns the condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


def with_condition(conditions: Iterable[Condition], new: Condition) -> tuple[Condition, ...]:
    """Returns the whole list with `new` in the place of its type.

    The transition time is kept while the status stays the same.  A merge patch replaces arrays, so the
    list that is written must hold the conditions of everybody else too.
    """
    kept = list(conditions)
    for index, old in enumerate(kept):
        if old.type == new.type:
            if old.status is new.status:
                new = new.model_copy(update={"last_transition_time": old.last_transition_time})
            kept[index] = new
            return tuple(kept)
    return (*kept, new)
