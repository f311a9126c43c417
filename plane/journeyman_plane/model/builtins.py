"""The few resources of Kubernetes itself that a fleet of one needs, in the form of our own registry.

They have no controllers here: a Service routes nothing, a Namespace is a name.
"""

from __future__ import annotations

from typing import Any

from journeyman_plane.model.resource import AGE, Column, Resource

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_BYTES = {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}}
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_BOOLEAN = {"type": "boolean"}
_TEXT = {"type": "string"}


def _schema(**properties: Any) -> dict[str, Any]:
    named = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}}
    return {"type": "object", "properties": named | properties}


NAMESPACES = Resource(
    group="", version="v1", plural="namespaces", singular="namespace", kind="Namespace", namespaced=False,
    schema=_schema(spec=_ANYTHING, status=_ANYTHING), short_names=("ns",), custom=False,
    columns=(Column("Name", "string", ".metadata.name"), Column("Status", "string", ".status.phase"), AGE),
)  # fmt: skip

CONFIGMAPS = Resource(
    group="", version="v1", plural="configmaps", singular="configmap", kind="ConfigMap", namespaced=True,
    schema=_schema(data=_TEXTS, binaryData=_BYTES, immutable=_BOOLEAN), short_names=("cm",), custom=False,
    columns=(Column("Name", "string", ".metadata.name"), Column("Data", "count", ".data"), AGE),
)  # fmt: skip

SECRETS = Resource(
    group="", version="v1", plural="secrets", singular="secret", kind="Secret", namespaced=True,
    schema=_schema(
        data=_BYTES, stringData=_TEXTS, immutable=_BOOLEAN, type={"type": "string", "default": "Opaque"}
    ),
    custom=False, field_labels=frozenset({"type"}),
    columns=(
        Column("Name", "string", ".metadata.name"),
        Column("Type", "string", ".type"),
        Column("Data", "count", ".data"),
        AGE,
    ),
)  # fmt: skip

EVENTS = Resource(
    group="", version="v1", plural="events", singular="event", kind="Event", namespaced=True,
    schema=_schema() | {"x-kubernetes-preserve-unknown-fields": True}, short_names=("ev",), custom=False,
    field_labels=frozenset(
        {"type", "reason"}
        | {f"involvedObject.{name}" for name in ("apiVersion", "kind", "name", "namespace", "uid")}
    ),
    columns=(
        Column("Last Seen", "date", ".lastTimestamp"),
        Column("Type", "string", ".type"),
        Column("Reason", "string", ".reason"),
        Column("Kind", "string", ".involvedObject.kind"),
        Column("Object", "string", ".involvedObject.name"),
        Column("Message", "string", ".message"),
    ),
)  # fmt: skip

SERVICES = Resource(
    group="", version="v1", plural="services", singular="service", kind="Service", namespaced=True,
    schema=_schema(spec=_ANYTHING, status=_ANYTHING), short_names=("svc",), custom=False,
    columns=(Column("Name", "string", ".metadata.name"), Column("Type", "string", ".spec.type"), AGE),
)  # fmt: skip

ENDPOINT_SLICES = Resource(
    group="discovery.k8s.io", version="v1", plural="endpointslices", singular="endpointslice",
    kind="EndpointSlice", namespaced=True,
    schema=_schema() | {"x-kubernetes-preserve-unknown-fields": True}, custom=False,
    columns=(
        Column("Name", "string", ".metadata.name"),
        Column("AddressType", "string", ".addressType"),
        AGE,
    ),
)  # fmt: skip

BUILT_IN = (NAMESPACES, CONFIGMAPS, SECRETS, EVENTS, SERVICES, ENDPOINT_SLICES)
