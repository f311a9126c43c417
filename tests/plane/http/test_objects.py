"""The REST surface, as a client sees it."""

from __future__ import annotations

import base64
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest

from tests.support.plane import FOREMAN, MERGE_PATCH, agentic_task, fleet_node

NODES = f"{FOREMAN}/fleetnodes"
RELEASES = f"{FOREMAN}/agentreleases"
TASKS = f"{FOREMAN}/namespaces/default/agentictasks"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def failure(reply: httpx.Response, code: int, reason: str) -> dict[str, Any]:
    """Checks that a reply is a Status of that code and reason, and returns it."""
    body: dict[str, Any] = reply.json()
    assert (reply.status_code, body["kind"], body["status"]) == (code, "Status", "Failure"), body
    assert (body["code"], body["reason"]) == (code, reason)
    return body


def test_a_created_object_has_an_identity(client: httpx.Client) -> None:
    """POST answers 201 with uid, resourceVersion and creationTimestamp, and drops a status."""
    reply = client.post(
        RELEASES,
        json={
            "metadata": {"name": "one"},
            "spec": {"agentKind": "foreman-agent", "version": "1"},
            "status": {"phase": "Failed"},
        },
    )
    made = reply.json()
    assert reply.status_code == 201
    assert {"uid", "resourceVersion", "creationTimestamp"} <= set(made["metadata"])
    assert made["metadata"]["generation"] == 1
    assert "status" not in made
    assert made["spec"]["approved"] is False


def test_a_taken_name_is_409(client: httpx.Client) -> None:
    """A second POST of one name is AlreadyExists."""
    body = {"metadata": {"name": "notes"}}
    assert client.post(CONFIGMAPS, json=body).status_code == 201
    message = failure(client.post(CONFIGMAPS, json=body), 409, "AlreadyExists")["message"]
    assert message == 'configmaps "notes" already exists'


def test_a_missing_object_is_404(client: httpx.Client) -> None:
    """GET, PATCH, PUT and DELETE of nothing are NotFound, with details that name it."""
    for reply in (
        client.get(f"{NODES}/ghost"),
        client.patch(f"{NODES}/ghost", json={}, headers=MERGE_PATCH),
        client.put(f"{NODES}/ghost", json=fleet_node("ghost")),
        client.delete(f"{NODES}/ghost"),
    ):
        details = failure(reply, 404, "NotFound")["details"]
        assert details == {"group": "foreman.llmkube.dev", "kind": "fleetnodes", "name": "ghost"}


def test_a_namespace_must_exist(client: httpx.Client) -> None:
    """A POST into a namespace that is not there is NotFound."""
    reply = client.post(f"{FOREMAN}/namespaces/void/agentictasks", json=agentic_task("one"))
    assert failure(reply, 404, "NotFound")["message"] == 'namespaces "void" not found'


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/apis/unknown.example/v1/things", 404),
        ("GET", f"{FOREMAN}/namespaces/default/fleetnodes", 404),
        ("GET", f"{NODES}/a/scale", 404),
        ("GET", "/elsewhere", 404),
        ("POST", f"{NODES}/a", 405),
        ("DELETE", NODES, 405),
        ("POST", f"{FOREMAN}/agentictasks", 405),
        ("POST", "/version", 405),
    ],
)
def test_what_is_not_served_says_so(client: httpx.Client, method: str, path: str, code: int) -> None:
    """An unknown path is 404 and a verb that is not served 405, both as a Status."""
    failure(client.request(method, path, json={}), code, "NotFound" if code == 404 else "MethodNotAllowed")


def test_every_broken_field_is_a_cause(client: httpx.Client) -> None:
    """A schema violation is 422 and names each field with its reason."""
    spec = {"kind": "nonsense", "timeoutSeconds": -1, "payload": {"issue": "seven"}, "agentRef": {}}
    body = failure(client.post(TASKS, json=agentic_task("bad", spec)), 422, "Invalid")
    causes = {cause["field"]: cause["reason"] for cause in body["details"]["causes"]}
    assert causes == {
        "spec.kind": "FieldValueNotSupported",
        "spec.timeoutSeconds": "FieldValueInvalid",
        "spec.payload.issue": "FieldValueTypeInvalid",
        "spec.agentRef.name": "FieldValueRequired",
    }
    assert body["message"].startswith('AgenticTask.foreman.llmkube.dev "bad" is invalid: [')
    failure(client.get(f"{TASKS}/bad"), 404, "NotFound")


def test_an_invalid_status_changes_nothing(client: httpx.Client) -> None:
    """A status patch that breaks the schema is 422, and the status stays."""
    client.post(
        RELEASES, json={"metadata": {"name": "one"}, "spec": {"agentKind": "foreman-agent", "version": "1"}}
    )
    before = client.get(f"{RELEASES}/one").json()
    reply = client.patch(
        f"{RELEASES}/one/status", json={"status": {"phase": "Sideways"}}, headers=MERGE_PATCH
    )
    failure(reply, 422, "Invalid")
    assert client.get(f"{RELEASES}/one").json().get("status", {}).get("phase") != "Sideways"
    assert client.get(f"{RELEASES}/one").json()["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.parametrize(
    "content_type", ["application/json-patch+json", "application/apply-patch+yaml", "text/plain"]
)
def test_other_patches_are_415(client: httpx.Client, content_type: str) -> None:
    """A patch of a type that is not served is refused with the types that are."""
    client.post(CONFIGMAPS, json={"metadata": {"name": "notes"}})
    reply = client.patch(f"{CONFIGMAPS}/notes", content=b"[]", headers={"Content-Type": content_type})
    assert "application/merge-patch+json" in failure(reply, 415, "UnsupportedMediaType")["message"]


def test_strategic_patches_are_plain_or_refused(client: httpx.Client) -> None:
    """A strategic patch of a built-in kind is merged; one with directives, or of a custom kind, is 415."""
    strategic = {"Content-Type": "application/strategic-merge-patch+json"}
    client.post(CONFIGMAPS, json={"metadata": {"name": "notes"}, "data": {"a": "1"}})
    merged = client.patch(f"{CONFIGMAPS}/notes", json={"data": {"b": "2"}}, headers=strategic)
    assert merged.json()["data"] == {"a": "1", "b": "2"}
    directive = client.patch(f"{CONFIGMAPS}/notes", json={"data": {"$patch": "replace"}}, headers=strategic)
    failure(directive, 415, "UnsupportedMediaType")
    client.post(NODES, json=fleet_node("attic"))
    failure(client.patch(f"{NODES}/attic", json={}, headers=strategic), 415, "UnsupportedMediaType")


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"\xff", b"[" * 100_000, b'{"x": NaN}'])
def test_a_body_that_is_no_object_is_400(client: httpx.Client, body: bytes) -> None:
    """Whatever is no JSON object is a BadRequest, however deep."""
    reply = client.post(CONFIGMAPS, content=body, headers={"Content-Type": "application/json"})
    failure(reply, 400, "BadRequest")


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"name": "other"}},
        {"metadata": {"name": "notes"}, "kind": "Secret"},
        {"metadata": {"name": "notes"}, "apiVersion": "v2"},
        {"metadata": "notes"},
        {"metadata": {"name": "notes", "labels": {"a": 1}}},
    ],
)
def test_a_body_for_another_url_is_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    """A PUT whose name, kind, version or metadata does not fit is a 400 or 422, never a 500."""
    client.post(CONFIGMAPS, json={"metadata": {"name": "notes"}})
    assert client.put(f"{CONFIGMAPS}/notes", json=body).status_code in {400, 422}


def test_a_status_patch_with_odd_metadata_is_400(client: httpx.Client) -> None:
    """Metadata that is no object is a BadRequest on the status, too."""
    client.post(NODES, json=fleet_node("attic"))
    reply = client.patch(f"{NODES}/attic/status", json={"metadata": "uid"}, headers=MERGE_PATCH)
    failure(reply, 400, "BadRequest")


def test_warnings_are_fit_for_a_header(client: httpx.Client) -> None:
    """Names of unknown fields are the client's: line ends and foreign letters arrive escaped."""
    reply = client.post(NODES, json=fleet_node("attic", **{"ü\r\nX: y": 1}))
    assert reply.status_code == 201
    assert reply.headers["warning"] == '299 - "unknown field \\"spec.\\u00fc\\r\\nX: y\\""'
    assert "x" not in reply.headers


def test_a_namespace_is_emptied_only_if_it_goes(client: httpx.Client) -> None:
    """A deletion that is refused takes nothing along, and the default namespace always stays."""
    client.post("/api/v1/namespaces", json={"metadata": {"name": "lab"}})
    client.post(f"{FOREMAN}/namespaces/lab/agentictasks", json=agentic_task("one"))
    other = {"preconditions": {"uid": "another"}}
    failure(client.request("DELETE", "/api/v1/namespaces/lab", json=other), 409, "Conflict")
    assert client.get(f"{FOREMAN}/namespaces/lab/agentictasks/one").status_code == 200
    failure(client.delete("/api/v1/namespaces/default"), 403, "Forbidden")
    assert client.delete("/api/v1/namespaces/lab").json()["status"] == "Success"
    assert client.get(f"{FOREMAN}/agentictasks").json()["items"] == []


def test_a_large_body_is_413(client: httpx.Client) -> None:
    """A body over 3 MiB is refused."""
    body = {"metadata": {"name": "big"}, "data": {"text": "x" * (3 * 1024 * 1024)}}
    failure(client.post(CONFIGMAPS, json=body), 413, "RequestEntityTooLarge")


def test_a_transcript_fits(client: httpx.Client) -> None:
    """A megabyte in a ConfigMap is stored and read back whole."""
    text = "x" * 1024 * 1024
    assert (
        client.post(CONFIGMAPS, json={"metadata": {"name": "log"}, "data": {"text": text}}).status_code == 201
    )
    assert client.get(f"{CONFIGMAPS}/log").json()["data"]["text"] == text


def test_a_stale_put_or_patch_is_409(client: httpx.Client) -> None:
    """A resourceVersion in the body is a compare-and-set, on objects and on their status."""
    stale = client.post(CONFIGMAPS, json={"metadata": {"name": "notes"}}).json()
    client.patch(f"{CONFIGMAPS}/notes", json={"data": {"a": "1"}}, headers=MERGE_PATCH)
    failure(client.put(f"{CONFIGMAPS}/notes", json=stale), 409, "Conflict")
    patch = {"metadata": {"resourceVersion": stale["metadata"]["resourceVersion"]}, "data": {"a": "2"}}
    failure(client.patch(f"{CONFIGMAPS}/notes", json=patch, headers=MERGE_PATCH), 409, "Conflict")
    made = client.post(
        RELEASES, json={"metadata": {"name": "one"}, "spec": {"agentKind": "foreman-agent", "version": "1"}}
    ).json()
    client.patch(f"{RELEASES}/one", json={"spec": {"version": "2"}}, headers=MERGE_PATCH)
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "status": {"targetNodes": 1}}
    failure(client.patch(f"{RELEASES}/one/status", json=old, headers=MERGE_PATCH), 409, "Conflict")


def test_delete_honours_preconditions(client: httpx.Client) -> None:
    """A DELETE for another uid or an older resourceVersion is a 409, and the object stays."""
    made = client.post(CONFIGMAPS, json={"metadata": {"name": "notes"}}).json()["metadata"]
    for preconditions in ({"uid": "another"}, {"resourceVersion": "1"}):
        reply = client.request("DELETE", f"{CONFIGMAPS}/notes", json={"preconditions": preconditions})
        failure(reply, 409, "Conflict")
    right = {"preconditions": {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}}
    gone = client.request("DELETE", f"{CONFIGMAPS}/notes", json=right).json()
    assert (gone["status"], gone["details"]["uid"]) == ("Success", made["uid"])


def test_finalizers_hold_an_object(client: httpx.Client) -> None:
    """An object with finalizers is marked by DELETE, and goes when the last finalizer does."""
    client.post(CONFIGMAPS, json={"metadata": {"name": "held", "finalizers": ["example.org/mine"]}})
    marked = client.request("DELETE", f"{CONFIGMAPS}/held").json()
    assert "deletionTimestamp" in marked["metadata"]
    assert client.get(f"{CONFIGMAPS}/held").status_code == 200
    client.patch(f"{CONFIGMAPS}/held", json={"metadata": {"finalizers": None}}, headers=MERGE_PATCH)
    failure(client.get(f"{CONFIGMAPS}/held"), 404, "NotFound")


def test_dry_runs_store_nothing(client: httpx.Client) -> None:
    """With dryRun=All every verb says what it would do, and does nothing."""
    dry = {"dryRun": "All"}
    assert client.post(CONFIGMAPS, json={"metadata": {"name": "a"}}, params=dry).status_code == 201
    failure(client.get(f"{CONFIGMAPS}/a"), 404, "NotFound")
    made = client.post(CONFIGMAPS, json={"metadata": {"name": "b"}}).json()
    patched = client.patch(f"{CONFIGMAPS}/b", json={"data": {"k": "v"}}, headers=MERGE_PATCH, params=dry)
    assert patched.json()["data"] == {"k": "v"}
    assert client.request("DELETE", f"{CONFIGMAPS}/b", params=dry).status_code == 200
    assert client.get(f"{CONFIGMAPS}/b").json() == made


def test_unknown_fields_are_dropped_with_a_warning(client: httpx.Client) -> None:
    """By default an unknown field is pruned and named in a Warning header; Strict refuses it."""
    body = fleet_node("attic", colour="green")
    reply = client.post(NODES, json=body)
    assert reply.json()["spec"] == {"nodeName": "attic"}
    assert reply.headers["warning"] == '299 - "unknown field \\"spec.colour\\""'
    failure(client.post(NODES, json=body, params={"fieldValidation": "Strict"}), 400, "BadRequest")


def test_secrets_take_plain_strings(client: httpx.Client) -> None:
    """The write-only stringData of a Secret is stored as base64 in data."""
    body = {"metadata": {"name": "key"}, "stringData": {"token": "hush"}}
    stored = client.post("/api/v1/namespaces/default/secrets", json=body).json()
    assert base64.b64decode(stored["data"]["token"]) == b"hush"
    assert "stringData" not in stored
    assert stored["type"] == "Opaque"
    bad = {"metadata": {"name": "bad"}, "data": {"token": "not base64!"}}
    failure(client.post("/api/v1/namespaces/default/secrets", json=bad), 422, "Invalid")


def test_generated_names_are_unique(client: httpx.Client) -> None:
    """A generateName makes up a name with that prefix, another each time."""
    names = {
        client.post(CONFIGMAPS, json={"metadata": {"generateName": "n-"}}).json()["metadata"]["name"]
        for _ in range(5)
    }
    assert len(names) == 5
    assert all(name.startswith("n-") for name in names)


def test_lists_select_and_carry_a_version(client: httpx.Client) -> None:
    """A list is sorted, filtered by label and field, whole in spite of `limit`, and carries a version."""
    for name in ("b", "a", "c"):
        client.post(CONFIGMAPS, json={"metadata": {"name": name, "labels": {"is": name}}})
    listed = client.get(CONFIGMAPS, params={"limit": 1}).json()
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert [each["metadata"]["name"] for each in listed["items"]] == ["a", "b", "c"]
    assert "continue" not in listed["metadata"]
    assert int(listed["metadata"]["resourceVersion"]) >= int(
        listed["items"][-1]["metadata"]["resourceVersion"]
    )
    for parameters, names in (
        ({"labelSelector": "is in (a,c)"}, ["a", "c"]),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "metadata.name!=b", "labelSelector": "is!=a"}, ["c"]),
    ):
        found = client.get(CONFIGMAPS, params=parameters).json()["items"]
        assert [each["metadata"]["name"] for each in found] == names
    failure(client.get(CONFIGMAPS, params={"fieldSelector": "data.x=1"}), 400, "BadRequest")
    failure(client.get(CONFIGMAPS, params={"labelSelector": "is in a"}), 400, "BadRequest")


def test_no_json_wanted_is_406(client: httpx.Client) -> None:
    """A client that takes protobuf alone is told so."""
    reply = client.get(NODES, headers={"Accept": "application/vnd.kubernetes.protobuf"})
    failure(reply, 406, "NotAcceptable")


def test_replies_carry_the_date(client: httpx.Client) -> None:
    """The Date header is there: agents correct their clocks by it."""
    assert parsedate_to_datetime(client.get("/version").headers["date"]).tzinfo is not None


def test_requests_are_counted(client: httpx.Client) -> None:
    """Metrics count requests for each verb and resource."""
    before = counted(client, "create"), counted(client, "list")
    client.post(NODES, json=fleet_node("attic"))
    client.get(NODES)
    client.get(NODES)
    assert counted(client, "create") == before[0] + 1
    assert counted(client, "list") == before[1] + 2


def test_bytes_are_counted(client: httpx.Client) -> None:
    """Metrics count the bytes of requests for objects, with their heads, and of no other request."""
    before = traffic(client)
    padding = "x" * 5000
    client.post(NODES, json=fleet_node("cellar", tailscaleAddr=padding)).raise_for_status()
    received, sent = (now - then for now, then in zip(traffic(client), before, strict=True))
    assert 5000 < received < 6000
    assert 5000 < sent < 6500


def traffic(client: httpx.Client) -> tuple[int, int]:
    """The bytes received and sent, so far."""
    counted = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines())
    received, sent = (counted[f"journeyman_plane_{word}_bytes_total"] for word in ("received", "sent"))
    return int(received), int(sent)


def counted(client: httpx.Client, verb: str) -> int:
    """How many requests for FleetNodes the metrics count."""
    prefix = f'journeyman_plane_requests_total{{verb="{verb}",resource="fleetnodes"}} '
    lines = client.get("/metrics").text.splitlines()
    return sum(int(line.removeprefix(prefix)) for line in lines if line.startswith(prefix))
