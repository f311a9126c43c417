"""Objects: identity, merge patches, the status subresource, conflicts, deletion."""

from __future__ import annotations

import pytest

from tests.conformance.kinds import CONFIGMAPS, MODELS, PROFILES, condition, configmap, model, profile
from tests.support.api_server import ApiServer

pytestmark = pytest.mark.slow


def test_a_created_object_is_whole(server: ApiServer) -> None:
    """POST answers 201 with identity and defaults, without the body's status; GET answers the same."""
    made = server.made(MODELS, model("conformance-one") | {"status": {"phase": "Ready"}})
    assert made["metadata"]["generation"] == 1
    assert made["spec"]["format"] == "gguf"
    assert "status" not in made
    assert server.call("GET", f"{MODELS}/conformance-one").json() == made


def test_what_the_server_owns_cannot_be_written(server: ApiServer) -> None:
    """Identity and times in the body of a POST or a patch are passed over."""
    own = {"uid": "mine", "creationTimestamp": "2000-01-01T00:00:00Z"}
    body = configmap("conformance-own")
    made = server.made(CONFIGMAPS, body | {"metadata": body["metadata"] | own})
    assert made["metadata"]["uid"] != "mine"
    path = f"{CONFIGMAPS}/conformance-own"
    kept = server.call("PATCH", path, {"metadata": {"creationTimestamp": own["creationTimestamp"]}}).json()
    assert kept["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


def test_a_merge_patch_merges(server: ApiServer) -> None:
    """Objects merge, null deletes, and only a change of the spec counts as a generation."""
    path = f"{MODELS}/conformance-patched"
    server.made(MODELS, model("conformance-patched", {"a": "1", "b": "2"}, hardware={"memoryBudget": "4Gi"}))
    patch = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"hardware": {"accelerator": "cuda"}}}
    patched = server.call("PATCH", path, patch).json()
    assert patched["metadata"]["labels"] == {"b": "2", "c": "3"}
    assert patched["spec"]["hardware"] == {"memoryBudget": "4Gi", "accelerator": "cuda"}
    assert patched["metadata"]["generation"] == 2
    relabelled = server.call("PATCH", path, {"metadata": {"labels": {"c": "4"}}}).json()
    assert relabelled["metadata"]["generation"] == 2
    assert relabelled["metadata"]["resourceVersion"] != patched["metadata"]["resourceVersion"]


def test_a_patch_that_changes_nothing_makes_no_version(server: ApiServer) -> None:
    """The resourceVersion stays where the object stays as it is."""
    made = server.made(CONFIGMAPS, configmap("conformance-same", a="1"))
    same = server.call("PATCH", f"{CONFIGMAPS}/conformance-same", {"data": {"a": "1"}}).json()
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_status_has_a_door_of_its_own(server: ApiServer) -> None:
    """A patch of the status leaves the spec, one of the object leaves the status, and neither says so."""
    path = f"{MODELS}/conformance-status"
    server.made(MODELS, model("conformance-status"))
    patch = {"status": {"phase": "Ready", "conditions": [condition("Cached")]}, "spec": {"format": "mlx"}}
    with_status = server.call("PATCH", f"{path}/status", patch).json()
    assert (with_status["status"]["phase"], with_status["spec"]["format"]) == ("Ready", "gguf")
    assert with_status["metadata"]["generation"] == 1
    untouched = server.call("PATCH", path, {"status": {"phase": "Failed"}}).json()
    assert untouched["status"]["phase"] == "Ready"
    replaced = server.call(
        "PATCH", f"{path}/status", {"status": {"conditions": [condition("Verified")]}}
    ).json()
    assert [each["type"] for each in replaced["status"]["conditions"]] == ["Verified"]
    cleared = server.call("PATCH", f"{path}/status", {"status": {"conditions": None}}).json()
    assert cleared["status"] == {"phase": "Ready"}
    assert server.call("GET", f"{path}/status").json() == cleared


def test_a_status_patch_reaches_no_metadata(server: ApiServer) -> None:
    """Labels and annotations in a patch of the status stay unwritten."""
    path = f"{MODELS}/conformance-labels"
    server.made(MODELS, model("conformance-labels", {"a": "1"}))
    patch = {"metadata": {"labels": {"a": "2"}, "annotations": {"b": "3"}}, "status": {"phase": "Ready"}}
    patched = server.call("PATCH", f"{path}/status", patch).json()
    assert patched["metadata"]["labels"] == {"a": "1"}
    assert "annotations" not in patched["metadata"]


def test_a_stale_write_is_a_conflict(server: ApiServer) -> None:
    """A resourceVersion in PUT or patch is compared: 409 Conflict, and nothing is written."""
    path = f"{MODELS}/conformance-stale"
    stale = server.made(MODELS, model("conformance-stale"))
    server.call("PATCH", path, {"spec": {"format": "mlx"}})
    version = {"metadata": {"resourceVersion": stale["metadata"]["resourceVersion"]}}
    for reply in (
        server.call("PUT", path, stale),
        server.call("PATCH", path, version | {"spec": {"format": "custom"}}),
        server.call("PATCH", f"{path}/status", version | {"status": {"phase": "Ready"}}),
    ):
        assert (reply.status_code, reply.json()["reason"]) == (409, "Conflict")
    left = server.call("GET", path).json()
    assert (left["spec"]["format"], "status" in left) == ("mlx", False)


def test_another_uid_is_refused(server: ApiServer) -> None:
    """An object of the same name that came later is left alone: a PUT is 409, a patch 422."""
    path = f"{MODELS}/conformance-uid"
    made = server.made(MODELS, model("conformance-uid"))
    other = {"uid": "of-one-that-went"}
    put = server.call("PUT", path, made | {"metadata": made["metadata"] | other})
    assert (put.status_code, put.json()["reason"]) == (409, "Conflict")
    patch = server.call("PATCH", path, {"metadata": other, "spec": {"format": "mlx"}})
    assert (patch.status_code, patch.json()["reason"]) == (422, "Invalid")
    server.call("PATCH", f"{path}/status", {"metadata": other, "status": {"phase": "Ready"}})


def test_a_put_replaces(server: ApiServer) -> None:
    """PUT replaces all but the status; without a version it is refused for custom kinds."""
    path = f"{MODELS}/conformance-put"
    made = server.made(MODELS, model("conformance-put", {"a": "1"}, refreshPolicy="Never"))
    whole = model("conformance-put", format="mlx")
    reply = server.call("PUT", path, whole)
    assert (reply.status_code, reply.json()["reason"]) == (422, "Invalid")
    whole["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
    replaced = server.call("PUT", path, whole).json()
    assert "labels" not in replaced["metadata"]
    assert replaced["spec"] == {"source": "https://models.example/a.gguf", "format": "mlx"}


def test_a_taken_name_already_exists(server: ApiServer) -> None:
    """A second POST of a name is 409 AlreadyExists, with details that name it."""
    for path, body in ((MODELS, model("conformance-twice")), (CONFIGMAPS, configmap("conformance-twice"))):
        server.made(path, body)
        reply = server.call("POST", path, body)
        assert (reply.status_code, reply.json()["reason"]) == (409, "AlreadyExists")
        assert reply.json()["details"]["name"] == "conformance-twice"


def test_what_is_missing_is_not_found(server: ApiServer) -> None:
    """Every verb on nothing is 404 with a Status that names the object."""
    path = f"{PROFILES}/conformance-ghost"
    for reply in (
        server.call("GET", path),
        server.call("PATCH", path, {"spec": {}}),
        server.call("PATCH", f"{path}/status", {"status": {}}),
        server.call("DELETE", path),
    ):
        assert (reply.status_code, reply.json()["reason"]) == (404, "NotFound")
        assert reply.json()["details"]["name"] == "conformance-ghost"


def test_what_is_not_served_is_another_404(server: ApiServer) -> None:
    """An unknown group, kind or subresource is 404 without details of an object."""
    for path in ("/apis/unknown.example/v1/things", f"{PROFILES}x", f"{PROFILES}/conformance-a/scale"):
        reply = server.call("GET", path, record=False)
        assert reply.status_code == 404
        assert server.call("GET", "/version", record=False).is_success


def test_a_namespace_must_exist(server: ApiServer) -> None:
    """A POST into a namespace that nobody made is 404."""
    reply = server.call("POST", f"{MODELS.replace('default', 'conformance-void')}", model("conformance-a"))
    assert (reply.status_code, reply.json()["reason"]) == (404, "NotFound")


def test_a_delete_says_what_went(server: ApiServer) -> None:
    """DELETE answers a Status with the uid, and honours preconditions."""
    path = f"{PROFILES}/conformance-gone"
    made = server.made(PROFILES, profile("conformance-gone"))
    for preconditions in ({"uid": "another"}, {"resourceVersion": "1"}):
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
        reply = server.call("DELETE", path, body)
        assert (reply.status_code, reply.json()["reason"]) == (409, "Conflict")
    gone = server.call("DELETE", path).json()
    assert (gone["status"], gone["details"]["uid"]) == ("Success", made["metadata"]["uid"])
    assert server.call("GET", path).status_code == 404


def test_finalizers_hold_an_object(server: ApiServer) -> None:
    """DELETE marks an object that has a finalizer; it goes with the last one."""
    path = f"{PROFILES}/conformance-held"
    body = profile("conformance-held")
    body["metadata"]["finalizers"] = ["conformance.example/hold"]
    server.made(PROFILES, body)
    marked = server.call("DELETE", path).json()
    assert "deletionTimestamp" in marked["metadata"]
    assert server.call("GET", path).status_code == 200
    server.call("PATCH", path, {"metadata": {"finalizers": None}})
    assert server.call("GET", path).status_code == 404


def test_a_dry_run_stores_nothing(server: ApiServer) -> None:
    """With dryRun=All each verb answers as if it had been done."""
    path = f"{MODELS}/conformance-dry"
    server.made(MODELS, model("conformance-dry"))
    patched = server.call("PATCH", path, {"spec": {"format": "mlx"}}, query={"dryRun": "All"}).json()
    assert patched["spec"]["format"] == "mlx"
    assert server.call("DELETE", path, query={"dryRun": "All"}).status_code == 200
    assert server.call("POST", MODELS, model("conformance-dry-2"), query={"dryRun": "All"}).status_code == 201
    assert server.call("GET", f"{MODELS}/conformance-dry-2").status_code == 404
    assert server.call("GET", path).json()["spec"]["format"] == "gguf"


def test_a_name_can_be_made_up(server: ApiServer) -> None:
    """A generateName gives another name each time."""
    found = []
    for _ in range(2):
        body = {"metadata": {"generateName": "conformance-x-"}}
        made = server.call("POST", CONFIGMAPS, body, record=False).json()["metadata"]["name"]
        server.made_paths.append(f"{CONFIGMAPS}/{made}")
        found.append(made)
    assert found[0] != found[1]
    assert all(each.startswith("conformance-x-") for each in found)
