"""Lists: selectors, versions, tables, and the 410 of a version that is gone."""

from __future__ import annotations

import pytest

from tests.conformance.kinds import CONFIGMAPS, MODELS, NODES, configmap, model
from tests.support.api_server import AS_TABLE, ApiServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
OURS = "conformance=lists"


def names_of(server: ApiServer, path: str, **query: str) -> list[str]:
    reply = server.call("GET", path, query=query)
    assert reply.status_code == 200, reply.text
    return [each["metadata"]["name"].removeprefix("conformance-") for each in reply.json()["items"]]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        (OURS, ["a", "b", "c"]),
        (f"{OURS},zone=attic", ["a"]),
        (f"{OURS},zone==attic", ["a"]),
        (f"{OURS},zone!=attic", ["b", "c"]),
        (f"{OURS},zone", ["a", "b"]),
        (f"{OURS},!zone", ["c"]),
        (f"{OURS},zone in (attic,cellar)", ["a", "b"]),
        (f"{OURS},zone notin (attic)", ["b", "c"]),
        (f"{OURS},example.org/zone=far", ["c"]),
        (f"{OURS},zone in (attic),zone notin (cellar)", ["a"]),
        ("conformance=nothing", []),
    ],
)
def test_labels_select(server: ApiServer, selector: str, found: list[str]) -> None:
    """The grammar of label selectors."""
    server.made(CONFIGMAPS, configmap("conformance-a", {"conformance": "lists", "zone": "attic"}))
    server.made(CONFIGMAPS, configmap("conformance-b", {"conformance": "lists", "zone": "cellar"}))
    server.made(CONFIGMAPS, configmap("conformance-c", {"conformance": "lists", "example.org/zone": "far"}))
    reply = server.call("GET", CONFIGMAPS, record=False, query={"labelSelector": selector})
    assert [each["metadata"]["name"][-1] for each in reply.json()["items"]] == found


def test_a_selector_that_cannot_be_read_is_400(server: ApiServer) -> None:
    """Neither labels nor fields can be selected by nonsense."""
    for query in ({"labelSelector": "=="}, {"labelSelector": "a in b"}, {"fieldSelector": "spec.source=x"}):
        assert server.call("GET", MODELS, query=query).status_code == 400


def test_fields_select(server: ApiServer) -> None:
    """The name is a field that every kind can be selected by."""
    for name in ("a", "b"):
        server.made(MODELS, model(f"conformance-{name}", {"conformance": "fields"}))
    only = {"labelSelector": "conformance=fields"}
    assert names_of(server, MODELS, fieldSelector="metadata.name=conformance-a") == ["a"]
    assert names_of(server, MODELS, fieldSelector="metadata.name!=conformance-a", **only) == ["b"]
    assert names_of(server, MODELS, fieldSelector="metadata.namespace=default", **only) == ["a", "b"]


def test_a_list_spans_namespaces(server: ApiServer) -> None:
    """Without a namespace in the URL all are listed; each list is of its kind and has a version."""
    server.made(MODELS, model("conformance-span", {"conformance": "span"}))
    everywhere = MODELS.replace("/namespaces/default", "")
    listed = server.call("GET", everywhere, query={"labelSelector": "conformance=span"}).json()
    assert (listed["kind"], len(listed["items"])) == ("ModelList", 1)
    assert listed["metadata"]["resourceVersion"].isdigit()


def test_a_table_has_our_columns(server: ApiServer) -> None:
    """A table has the printer columns of the kind, and one row an object."""
    server.made(MODELS, model("conformance-row", {"conformance": "table"}))
    listed = server.call("GET", MODELS, accept=AS_TABLE, query={"labelSelector": "conformance=table"}).json()
    assert [each["name"] for each in listed["columnDefinitions"]] == [
        "Name",
        "Format",
        "Size",
        "Source",
        "Age",
    ]
    assert listed["rows"][0]["cells"][:2] == ["conformance-row", "gguf"]
    one = server.call("GET", f"{MODELS}/conformance-row", accept=f"{AS_TABLE},application/json").json()
    assert (one["kind"], len(one["rows"])) == ("Table", 1)


def test_a_table_can_carry_objects(server: ApiServer) -> None:
    """`includeObject` says whether rows carry nothing, metadata or all."""
    server.made(MODELS, model("conformance-row"))
    path = f"{MODELS}/conformance-row"
    for include in ("None", "Metadata", "Object"):
        server.call("GET", path, accept=AS_TABLE, query={"includeObject": include})


def test_discovery_names_our_kinds(server: ApiServer) -> None:
    """Discovery lists each kind with its subresource, short names and scope."""
    listed = server.call("GET", NODES.rpartition("/")[0], record=False).json()
    by_name = {each["name"]: each for each in listed["resources"]}
    assert by_name["fleetnodes"]["namespaced"] is False
    assert by_name["fleetnodes"]["kind"] == "FleetNode"
    assert by_name["agentictasks"]["namespaced"] is True
    verbs = {"create", "delete", "get", "list", "patch", "update", "watch"}
    assert verbs <= set(by_name["agentictasks"]["verbs"])
    assert set(by_name["fleetnodes/status"]["verbs"]) == {"get", "patch", "update"}


def test_an_exact_version_that_is_gone_is_410(server: ApiServer) -> None:
    """A list at exactly a version that was compacted is a 410 Expired by its HTTP status."""
    server.made(MODELS, model("conformance-newer"))
    exact = {"resourceVersion": "1", "resourceVersionMatch": "Exact", "limit": "10"}

    def is_gone() -> bool:
        return server.call("GET", MODELS, record=False, query=exact).status_code == 410

    # A server that has just been started compacts a little later.
    eventually(is_gone, within_seconds=60, every_seconds=0.2)
    reply = server.call("GET", MODELS, record=False, query=exact).json()
    assert (reply["kind"], reply["reason"], reply["code"]) == ("Status", "Expired", 410)


def test_an_exact_version_that_is_there_is_listed(server: ApiServer) -> None:
    """The newest version can be asked for exactly."""
    server.made(MODELS, model("conformance-exact", {"conformance": "exact"}))
    only = {"labelSelector": "conformance=exact"}
    version = server.call("GET", MODELS, query=only).json()["metadata"]["resourceVersion"]
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    listed = server.call("GET", MODELS, record=False, query=only | exact).json()
    assert listed["metadata"]["resourceVersion"] == version
    assert len(listed["items"]) == 1
