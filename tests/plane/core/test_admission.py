"""What may be stored: the schemas of the definitions, applied."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journeyman_plane.adapters.crd_files import load_registry
from journeyman_plane.core.admission import Admission
from journeyman_plane.core.merge_patch import merge_patch
from journeyman_plane.errors import RequestError, SchemaError
from journeyman_plane.model.resource import Resource

REGISTRY = load_registry()
ADMISSION = Admission(REGISTRY)
WORDS = st.sampled_from(
    ["spec", "status", "kind", "name", "labels", "metadata", "payload", "conditions", "x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def kind(name: str) -> Resource:
    return next(each for each in REGISTRY.resources if each.kind == name)


def admitted(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return ADMISSION.admit(kind(name), {"metadata": {"name": "one"}} | body)[0]


def causes(name: str, body: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(SchemaError) as caught:
        admitted(name, body)
    return {cause.field: cause.reason for cause in caught.value.causes}


def test_defaults_are_filled_in_where_their_parent_is() -> None:
    """A default applies to a missing or null field of an object that is there; nothing else is made."""
    release = admitted(
        "AgentRelease", {"spec": {"agentKind": "foreman-agent", "version": "1", "approved": None}}
    )
    assert release["spec"] == {
        "agentKind": "foreman-agent",
        "version": "1",
        "concurrency": 1,
        "approved": False,
    }
    gated = admitted("AgentRelease", {"spec": {"agentKind": "metal-agent", "version": "1", "healthGate": {}}})
    assert gated["spec"]["healthGate"] == {"minHealthySeconds": 60, "timeoutSeconds": 600}
    task = admitted("AgenticTask", {"spec": {"kind": "verify", "requiredCapability": {}, "payload": {}}})
    assert task["spec"]["requiredCapability"] == {"accelerator": "any"}
    assert task["spec"]["payload"] == {"branchStrategy": "reset"}
    persona = admitted("Agent", {"spec": {"role": "coder"}})
    assert (persona["spec"]["maxTurns"], persona["spec"]["provider"]) == (50, "local")


def test_free_objects_keep_everything() -> None:
    """A result envelope is kept as it is, with fields that no schema names."""
    result = {"extra": {"outcome": "ALREADY-RESOLVED", "deep": [{"x": None}]}}
    task = admitted("AgenticTask", {"spec": {"kind": "freeform"}, "status": {"result": result, "unknown": 1}})
    assert task["status"] == {"result": result}


VALID = {
    "FleetNode": {"nodeName": "desk"},
    "AgenticTask": {"kind": "verify"},
    "Agent": {"role": "coder"},
    "AgentRelease": {"agentKind": "foreman-agent", "version": "1"},
    "Model": {"source": "hf://owner/name"},
    "InferenceService": {"modelRef": "tiny"},
}
CONDITION = {
    "type": "Held", "status": "True", "reason": "TooHot", "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip
REQUEST = {"targetVersion": "1", "url": "https://x.example"}
ARTIFACT = {"os": "bsd", "arch": "arm64", "url": "https://x.example", "sha256": "0" * 64}
REQUIRED, UNSUPPORTED = "FieldValueRequired", "FieldValueNotSupported"
INVALID, WRONG_TYPE, DUPLICATE = "FieldValueInvalid", "FieldValueTypeInvalid", "FieldValueDuplicate"


@pytest.mark.parametrize(
    ("name", "place", "value", "broken", "reason"),
    [
        ("FleetNode", "spec.nodeName", "", "", INVALID),
        ("FleetNode", "status.phase", "Up", "", UNSUPPORTED),
        ("FleetNode", "status.lastHeartbeatTime", "now", "", INVALID),
        ("FleetNode", "status.lastHeartbeatTime", "2026-01-01T00:00:00", "", INVALID),
        ("FleetNode", "status.capability.totalRAMGB", 2**31, "", INVALID),
        ("FleetNode", "status.capability.totalRAMGB", -1, "", INVALID),
        ("FleetNode", "status.capability.totalRAMGB", 1.5, "", WRONG_TYPE),
        ("FleetNode", "status.capability.accelerator", "tpu", "", UNSUPPORTED),
        ("FleetNode", "status.updateRequest", REQUEST, ".sha256", REQUIRED),
        ("FleetNode", "status.updateRequest", REQUEST | {"sha256": "AB"}, ".sha256", INVALID),
        ("FleetNode", "status.updateRequest", REQUEST | {"sha256": "0" * 64 + "\n"}, ".sha256", INVALID),
        ("FleetNode", "status.conditions", [CONDITION | {"reason": ""}], "[0].reason", INVALID),
        ("FleetNode", "status.conditions", [CONDITION, CONDITION], "[1]", DUPLICATE),
        ("FleetNode", "status.conditions", [7], "[0]", WRONG_TYPE),
        ("AgenticTask", "spec.kind", "chat", "", UNSUPPORTED),
        ("AgenticTask", "spec.payload.issue", 0, "", INVALID),
        ("AgenticTask", "status.verdict", "MAYBE", "", UNSUPPORTED),
        ("AgenticTask", "status.failureReason", "Bored", "", UNSUPPORTED),
        ("Agent", "spec.temperature", "3", "", INVALID),
        ("Agent", "spec.maxTurns", 501, "", INVALID),
        ("Agent", "spec.tools", [], "", INVALID),
        ("AgentRelease", "spec.concurrency", 0, "", INVALID),
        ("AgentRelease", "spec.artifacts", [ARTIFACT], "[0].os", UNSUPPORTED),
        ("Model", "spec.source", "ftp://x", "", INVALID),
        ("InferenceService", "spec.runtime", "ollama", "", UNSUPPORTED),
    ],
)
def test_limits_of_the_contract(name: str, place: str, value: Any, broken: str, reason: str) -> None:
    """Each enum, pattern and range of the contract is enforced, and the field that breaks it is named."""
    body = {"spec": VALID[name]}
    assert admitted(name, body)
    *parents, last = place.split(".")
    patch: dict[str, Any] = {last: value}
    for parent in reversed(parents):
        patch = {parent: patch}
    assert causes(name, merge_patch(body, patch)) == {place + broken: reason}


@pytest.mark.parametrize("name", VALID)
def test_required_fields(name: str) -> None:
    """An object without what it must have is refused."""
    assert causes(name, {}) == {"spec": REQUIRED}
    assert set(causes(name, {"spec": {}}).values()) == {REQUIRED}


@pytest.mark.parametrize("name", ["", "Desk", "-desk", "a..b", "a" * 254, "a/b", "a\n"])
def test_names_are_dns_names(name: str) -> None:
    """A name is an RFC 1123 subdomain."""
    with pytest.raises(SchemaError, match=r"metadata\.name"):
        ADMISSION.admit(kind("ConfigMap"), {"metadata": {"name": name}})


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a b": "c"}}, {"labels": {"a": "b c"}}, {"labels": {"a": "x" * 64}}, {"labels": ["a"]},
        {"labels": {"a": None}},
        {"annotations": {"UP/x": "y"}}, {"annotations": {"a": "x" * (256 * 1024)}},
    ],
)  # fmt: skip
def test_labels_and_annotations_are_checked(metadata: dict[str, Any]) -> None:
    """Labels and annotations that Kubernetes refuses are refused."""
    with pytest.raises(SchemaError, match=r"metadata\.(labels|annotations)"):
        admitted("ConfigMap", {"metadata": {"name": "one"} | metadata})


def test_strict_names_unknown_fields() -> None:
    """In strict mode unknown fields are an error that names them all."""
    body = {"metadata": {"name": "one"}, "spec": {"nodeName": "a", "x": 1}, "y": 2}
    with pytest.raises(RequestError, match=r'"spec\.x", unknown field "y"'):
        ADMISSION.admit(kind("FleetNode"), body, strict=True)
    assert ADMISSION.admit(kind("FleetNode"), body)[1] == ['unknown field "spec.x"', 'unknown field "y"']


@given(
    st.dictionaries(
        st.sampled_from(["apiVersion", "kind", "metadata", "spec", "status", "data", "stringData"]), JSON
    )
)
@pytest.mark.parametrize("name", ["FleetNode", "AgenticTask", "Secret", "Event"])
@settings(max_examples=150)
def test_no_body_breaks_it(name: str, body: dict[str, Any]) -> None:
    """Whatever a client sends is admitted or refused with a reason, never a crash."""
    try:
        ADMISSION.admit(kind(name), body)
    except (RequestError, SchemaError) as error:
        assert error.status in {400, 422}  # noqa: PT017
