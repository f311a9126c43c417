"""The real Python client against a real plane."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.plane import RunningPlane, fleet_node

pytestmark = pytest.mark.slow
# Its annotations cover a part of it only.
kubernetes: Any = importlib.import_module("kubernetes")
client = kubernetes.client
GROUP, VERSION = "foreman.llmkube.dev", "v1alpha1"


@pytest.fixture
def api(plane: RunningPlane) -> Iterator[Any]:
    """A client that was set up from the admin's kubeconfig."""
    with kubernetes.config.new_client_from_config(str(plane.kubeconfig)) as made:
        yield made


@pytest.fixture
def objects(api: Any) -> Any:
    """The part of the client for custom resources."""
    return client.CustomObjectsApi(api)


def draining(objects: Any, name: str) -> Any:
    """A node that no reconciler touches, as it has beaten and drains."""
    objects.create_cluster_custom_object(GROUP, VERSION, "fleetnodes", fleet_node(name))
    status = {"status": {"phase": "Draining", "lastHeartbeatTime": "2999-01-01T00:00:00Z"}}
    return objects.patch_cluster_custom_object_status(GROUP, VERSION, "fleetnodes", name, status)


def test_it_lists(objects: Any) -> None:
    """A list holds what was created, and selects by label."""
    draining(objects, "attic")
    labels = {"metadata": {"labels": {"room": "cellar"}}}
    draining(objects, "cellar")
    objects.patch_cluster_custom_object(GROUP, VERSION, "fleetnodes", "cellar", labels)
    listed = objects.list_cluster_custom_object(GROUP, VERSION, "fleetnodes")
    assert [each["metadata"]["name"] for each in listed["items"]] == ["attic", "cellar"]
    found = objects.list_cluster_custom_object(GROUP, VERSION, "fleetnodes", label_selector="room=cellar")
    assert [each["metadata"]["name"] for each in found["items"]] == ["cellar"]


def test_it_patches_a_status(objects: Any) -> None:
    """A patch of the status leaves the rest alone."""
    patched = draining(objects, "attic")
    assert patched["status"]["phase"] == "Draining"
    assert patched["spec"] == {"nodeName": "attic"}


def test_it_meets_a_conflict(objects: Any) -> None:
    """A write from a stale read is a 409 with reason Conflict, and changes nothing."""
    stale = draining(objects, "attic")
    newer = objects.patch_cluster_custom_object(
        GROUP, VERSION, "fleetnodes", "attic", {"spec": {"roles": ["worker"]}}
    )
    with pytest.raises(client.ApiException) as caught:
        objects.replace_cluster_custom_object(GROUP, VERSION, "fleetnodes", "attic", stale)
    assert caught.value.status == 409
    assert '"reason":"Conflict"' in caught.value.body
    assert objects.get_cluster_custom_object(GROUP, VERSION, "fleetnodes", "attic") == newer


def test_it_watches(objects: Any) -> None:
    """A watch sees what happens after the list that it starts from, in order."""
    version = objects.list_cluster_custom_object(GROUP, VERSION, "fleetnodes")["metadata"]["resourceVersion"]
    draining(objects, "attic")
    objects.delete_cluster_custom_object(GROUP, VERSION, "fleetnodes", "attic")
    stream = kubernetes.watch.Watch()
    seen = []
    for event in stream.stream(
        objects.list_cluster_custom_object,
        GROUP,
        VERSION,
        "fleetnodes",
        resource_version=version,
        timeout_seconds=20,
    ):
        seen.append(event["type"])
        if event["type"] == "DELETED":
            stream.stop()
    assert seen[0] == "ADDED"
    assert seen[-1] == "DELETED"
    assert set(seen[1:-1]) <= {"MODIFIED"}


def test_typed_and_dynamic_clients_work(api: Any) -> None:
    """Typed models parse what the plane answers, and its discovery is enough for the dynamic client."""
    core = client.CoreV1Api(api)
    made = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="notes"), data={"colour": "red"})
    core.create_namespaced_config_map("default", made)
    patched = core.patch_namespaced_config_map("notes", "default", {"data": {"size": "small"}})
    assert patched.data == {"colour": "red", "size": "small"}
    assert {each.metadata.name for each in core.list_namespace().items} == {"default", "foreman-system"}
    assert client.VersionApi(api).get_code().major == "1"
    tasks = kubernetes.dynamic.DynamicClient(api).resources.get(
        api_version=f"{GROUP}/{VERSION}", kind="AgenticTask"
    )
    assert tasks.get(namespace="default").items == []
