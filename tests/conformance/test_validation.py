"""What a server refuses, and in which words for programs."""

from __future__ import annotations

import pytest

from tests.conformance.kinds import (
    CONFIGMAPS,
    MODELS,
    PROFILES,
    TASKS,
    condition,
    configmap,
    model,
    profile,
)
from tests.support.api_server import MERGE_PATCH, ApiServer

pytestmark = pytest.mark.slow
# Of servers since Kubernetes 1.25; older ones drop unknown fields in silence.
FIELD_VALIDATION = 25


def test_every_broken_field_is_a_cause(server: ApiServer) -> None:
    """An object that breaks its schema is 422, and each field is named with the reason."""
    spec = {"kind": "nonsense", "timeoutSeconds": -1, "payload": {"issue": "seven"}, "agentRef": {}}
    body = {"apiVersion": "foreman.llmkube.dev/v1alpha1", "kind": "AgenticTask", "spec": spec}
    reply = server.call("POST", TASKS, body | {"metadata": {"name": "conformance-bad"}})
    assert (reply.status_code, reply.json()["reason"]) == (422, "Invalid")
    fields = {each["field"] for each in reply.json()["details"]["causes"]}
    assert fields == {"spec.kind", "spec.timeoutSeconds", "spec.payload.issue", "spec.agentRef.name"}


def test_a_missing_spec_is_a_cause(server: ApiServer) -> None:
    """A required field at the top, a pattern and a range are refused alike."""
    body = {"apiVersion": "inference.llmkube.dev/v1alpha1", "kind": "Model"}
    reply = server.call("POST", MODELS, body | {"metadata": {"name": "conformance-bad"}})
    assert reply.status_code == 422
    assert server.call("POST", MODELS, model("conformance-bad", sha256="zz")).status_code == 422
    limits = {"stuckLoopDetection": {"repeatedToolThreshold": 101}}
    assert server.call("POST", PROFILES, profile("conformance-bad", **limits)).status_code == 422


def test_a_status_is_judged(server: ApiServer) -> None:
    """A patch of the status that breaks the schema is 422, and the status stays."""
    server.made(MODELS, model("conformance-judged"))
    path = f"{MODELS}/conformance-judged"
    bad = condition("Cached") | {"status": "Perhaps"}
    for conditions in ([bad], [{"type": "Cached"}]):
        reply = server.call("PATCH", f"{path}/status", {"status": {"conditions": conditions}})
        assert reply.status_code == 422
    assert "status" not in server.call("GET", path).json()


def test_a_bad_name_is_refused(server: ApiServer) -> None:
    """Names, labels and annotations follow the rules of Kubernetes."""
    for name in ("Upper", "under_score", "-a", "a" * 254):
        assert server.call("POST", PROFILES, profile(name)).status_code == 422
    for labels in ({"a b": "1"}, {"a": "-"}, {"a": "x" * 64}):
        assert server.call("POST", CONFIGMAPS, configmap("conformance-bad", labels)).status_code == 422
    nameless = {"apiVersion": "foreman.llmkube.dev/v1alpha1", "kind": "ModelProfile", "spec": {}}
    assert server.call("POST", PROFILES, nameless).status_code == 422


def test_unknown_fields_are_dropped(server: ApiServer) -> None:
    """A field that the schema does not know is not stored; where it says so itself, it is kept."""
    made = server.made(PROFILES, profile("conformance-more", colour="green", systemPromptAddendum="x"))
    assert made["spec"] == {"systemPromptAddendum": "x"}
    kept = server.made(MODELS, model("conformance-more", colour="green"))
    assert kept["spec"]["colour"] == "green"


def test_strict_means_strict(server: ApiServer) -> None:
    """With fieldValidation=Strict an unknown field is 400, on servers that know the parameter."""
    body = profile("conformance-strict", colour="green")
    reply = server.call("POST", PROFILES, body, record=False, query={"fieldValidation": "Strict"})
    server.made_paths.append(f"{PROFILES}/conformance-strict")
    assert reply.status_code == (400 if server.minor >= FIELD_VALIDATION else 201)


def test_a_null_gives_way_to_the_default(server: ApiServer) -> None:
    """A null in a field with a default is the default, and in one without is dropped or refused alike."""
    made = server.made(MODELS, model("conformance-null", format=None))
    assert made["spec"]["format"] == "gguf"


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'"text"', b'{"metadata": "text"}'], ids=["cut", "list", "text", "odd"]
)
def test_a_body_that_is_no_object_is_400(server: ApiServer, body: bytes) -> None:
    """Whatever is no JSON object is a BadRequest."""
    reply = server.call("POST", MODELS, body, record=False)
    assert reply.status_code == 400
    assert reply.json()["kind"] == "Status"


def test_a_body_for_another_url_is_400(server: ApiServer) -> None:
    """Version, name and namespace of a body must be those of the URL; another kind is invalid."""
    path = f"{MODELS}/conformance-url"
    made = server.made(MODELS, model("conformance-url"))
    for change in (
        {"apiVersion": "inference.llmkube.dev/v9"},
        {"metadata": made["metadata"] | {"name": "conformance-other"}},
        {"metadata": made["metadata"] | {"namespace": "elsewhere"}},
    ):
        assert server.call("PUT", path, made | change).status_code == 400
    assert server.call("PUT", path, made | {"kind": "ModelProfile"}).status_code == 422


def test_an_unknown_patch_is_415(server: ApiServer) -> None:
    """A patch of a type that is not known is 415, and the answer lists those that are."""
    server.made(MODELS, model("conformance-type"))
    reply = server.call("PATCH", f"{MODELS}/conformance-type", b"[]", content_type="text/plain")
    assert (reply.status_code, reply.json()["reason"]) == (415, "UnsupportedMediaType")
    assert MERGE_PATCH in reply.json()["message"]


def test_a_verb_that_is_not_served_is_405(server: ApiServer) -> None:
    """POST to an object is no verb of the API."""
    reply = server.call("POST", f"{CONFIGMAPS}/conformance-verb", configmap("conformance-verb"))
    assert (reply.status_code, reply.json()["reason"]) == (405, "MethodNotAllowed")


def test_nobody_is_401(server: ApiServer) -> None:
    """A token that nobody knows is 401 Unauthorized."""
    with server.as_bearer("of-nobody") as nobody:
        reply = nobody.call("GET", MODELS)
        assert (reply.status_code, reply.json()["reason"]) == (401, "Unauthorized")
