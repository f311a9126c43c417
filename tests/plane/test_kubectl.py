"""The real kubectl against a real plane: each verb that people use."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.plane import FOREMAN, MERGE_PATCH, RunningPlane, agentic_task, fleet_node, running_plane

pytestmark = pytest.mark.slow

Kubectl = Callable[..., subprocess.CompletedProcess[str]]
DEADLINE_SECONDS = 30
HEADING = [
    "NAME", "PHASE", "ACCELERATOR", "RAM", "GB", "VERSION", "TASK", "HEARTBEAT", "OS", "ARCH", "HELD", "AGE",
]  # fmt: skip
TASK = """
apiVersion: foreman.llmkube.dev/v1alpha1
kind: AgenticTask
metadata: {name: colours}
spec: {kind: freeform, payload: {prompt: Name three colours.}}
"""
RELEASE = """
apiVersion: foreman.llmkube.dev/v1alpha1
kind: AgentRelease
metadata: {name: spring}
spec: {agentKind: foreman-agent, version: 1.2.3}
"""
CONFIGMAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data: {colour: red}
"""


def command(plane: RunningPlane, home: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a kubectl with a cache of its own."""
    kubectl = str(Path(sys.executable).parent / "kubectl")
    return [kubectl, "--kubeconfig", str(plane.kubeconfig), *arguments], {
        "HOME": str(home),
        "PATH": os.defpath,
    }


def runner(plane: RunningPlane, home: Path) -> Kubectl:
    """A function that runs kubectl, and fails the test where it fails unless `check=False`."""

    def run(*arguments: str, given: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        words, environment = command(plane, home, *arguments)
        done = subprocess.run(
            words,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_SECONDS,
        )
        assert done.returncode == 0 or not check, done.stderr
        return done

    return run


@pytest.fixture
def kubectl(plane: RunningPlane, tmp_path: Path) -> Kubectl:
    """kubectl for the plane of this test."""  # noqa: D403  # it is spelled like that
    return runner(plane, tmp_path)


@pytest.fixture
def node(client: httpx.Client) -> str:
    """A FleetNode that has just beaten."""
    client.post(f"{FOREMAN}/fleetnodes", json=fleet_node("desk")).raise_for_status()
    status = {
        "phase": "Draining",
        "agentVersion": "1.2.3",
        "lastHeartbeatTime": "2999-01-01T00:00:00Z",
        "capability": {"accelerator": "metal", "totalRAMGB": 16},
    }
    client.patch(
        f"{FOREMAN}/fleetnodes/desk/status", json={"status": status}, headers=MERGE_PATCH
    ).raise_for_status()
    return "desk"


def test_get_prints_the_columns_of_the_definition(kubectl: Kubectl, node: str) -> None:
    """`get fleetnodes` prints the printer columns, and `-o wide` the lesser ones too."""
    heading, row = kubectl("get", "fleetnodes").stdout.splitlines()
    assert heading.split() == HEADING[:8] + HEADING[-1:]
    assert row.split()[:5] == [node, "Draining", "metal", "16", "1.2.3"]
    wide, _ = kubectl("get", "fn", "-o", "wide").stdout.splitlines()
    assert wide.split() == HEADING


def test_get_prints_yaml_and_jsonpath(kubectl: Kubectl, node: str) -> None:
    """`get -o yaml` and `-o jsonpath` print the stored object."""
    assert "totalRAMGB: 16" in kubectl("get", "fn", node, "-o", "yaml").stdout
    assert kubectl("get", "fn", node, "-o", "jsonpath={.status.agentVersion}").stdout == "1.2.3"


def test_describe_shows_the_object_and_its_events(kubectl: Kubectl, node: str, client: httpx.Client) -> None:
    """`describe` shows the fields of an object and the events that are about it."""
    about = {
        "kind": "FleetNode",
        "name": node,
        "uid": kubectl("get", "fn", node, "-o", "jsonpath={.metadata.uid}").stdout,
    }
    event = {
        "metadata": {"name": "held"}, "involvedObject": about, "type": "Warning",
        "reason": "TooHot", "message": "81 degrees",
    }  # fmt: skip
    client.post("/api/v1/namespaces/default/events", json=event).raise_for_status()
    other = event | {
        "metadata": {"name": "other"},
        "reason": "Foreign",
        "involvedObject": about | {"name": "x"},
    }
    client.post("/api/v1/namespaces/default/events", json=other).raise_for_status()
    text = kubectl("describe", "fn", node).stdout
    assert re.search(r"Total RAMGB: +16\n", text)
    assert "TooHot" in text
    assert "Foreign" not in text


@pytest.mark.parametrize(
    ("manifest", "changed", "name"),
    [
        (TASK, TASK.replace("three", "four"), "agentictask.foreman.llmkube.dev/colours"),
        (RELEASE, RELEASE.replace("1.2.3", "1.2.4"), "agentrelease.foreman.llmkube.dev/spring"),
        (CONFIGMAP, CONFIGMAP.replace("red", "blue"), "configmap/notes"),
    ],
    ids=["AgenticTask", "AgentRelease", "ConfigMap"],
)
def test_apply_creates_leaves_and_changes(kubectl: Kubectl, manifest: str, changed: str, name: str) -> None:
    """`apply` says created, then unchanged, then configured, for custom and for built-in kinds."""
    assert kubectl("apply", "-f", "-", given=manifest).stdout == f"{name} created\n"
    assert kubectl("apply", "-f", "-", given=manifest).stdout == f"{name} unchanged\n"
    assert kubectl("apply", "-f", "-", given=changed).stdout == f"{name} configured\n"


def test_apply_names_the_field_that_is_wrong(kubectl: Kubectl) -> None:
    """`apply` of an unknown field or of a value outside of an enum says which, and stores nothing."""
    unknown = kubectl("apply", "-f", "-", given=TASK.replace("prompt", "promt"), check=False)
    assert 'unknown field "spec.payload.promt"' in unknown.stderr
    wrong = kubectl("apply", "-f", "-", given=TASK.replace("freeform", "nonsense"), check=False)
    assert 'spec.kind: Unsupported value: "nonsense"' in wrong.stderr
    assert kubectl("get", "agentictasks").stdout == ""


def test_a_server_dry_run_stores_nothing(kubectl: Kubectl) -> None:
    """`apply --dry-run=server` validates, and leaves nothing behind."""
    assert "created (server dry run)" in kubectl("apply", "--dry-run=server", "-f", "-", given=TASK).stdout
    assert "No resources found" in kubectl("get", "at").stderr


def test_patch_merges(kubectl: Kubectl, node: str) -> None:
    """`patch --type merge` changes the object, and with --subresource its status."""
    kubectl("patch", "fn", node, "--type", "merge", "-p", '{"spec":{"roles":["worker"]}}')
    kubectl(
        "patch",
        "fn",
        node,
        "--subresource",
        "status",
        "--type",
        "merge",
        "-p",
        '{"status":{"agentVersion":"9"}}',
    )
    found = json.loads(kubectl("get", "fn", node, "-o", "json").stdout)
    assert found["spec"] == {"nodeName": node, "roles": ["worker"]}
    assert (found["status"]["agentVersion"], found["status"]["phase"]) == ("9", "Draining")


def test_kinds_of_patch_that_are_not_served_are_refused(kubectl: Kubectl, node: str) -> None:
    """JSON patches and server-side apply are refused with a reason, never half understood."""
    for arguments in (
        ["patch", "fn", node, "--type", "json", "-p", "[]"],
        ["apply", "--server-side", "-f", "-"],
    ):
        refused = kubectl(*arguments, given=TASK, check=False)
        assert refused.returncode == 1
        assert "accepted here: application/merge-patch+json" in refused.stderr


def test_label_and_annotate(kubectl: Kubectl, node: str) -> None:
    """`label` and `annotate` set and remove, and `get -l` selects by equality and by set."""
    kubectl("label", "fn", node, "room=attic")
    kubectl("annotate", "fn", node, "note=hot")
    assert node in kubectl("get", "fn", "-l", "room=attic").stdout
    assert node in kubectl("get", "fn", "-l", "room in (attic,cellar),!gone").stdout
    assert "No resources found" in kubectl("get", "fn", "-l", "room!=attic").stderr
    kubectl("label", "fn", node, "room-")
    assert "No resources found" in kubectl("get", "fn", "-l", "room").stderr


def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl, node: str) -> None:
    """`delete` returns once the object is gone, and says NotFound the second time."""
    assert "deleted" in kubectl("delete", "fn", node).stdout
    assert "NotFound" in kubectl("delete", "fn", node, check=False).stderr


def test_get_watch_streams_rows(plane: RunningPlane, client: httpx.Client, tmp_path: Path, node: str) -> None:
    """`get --watch` prints the rows that are there, then one for each change."""
    words, environment = command(plane, tmp_path, "get", "fleetnodes", "--watch")
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        deadline = threading.Timer(DEADLINE_SECONDS, watching.kill)
        deadline.start()
        try:
            assert watching.stdout is not None
            assert watching.stdout.readline().startswith("NAME")
            assert watching.stdout.readline().split()[:2] == [node, "Draining"]
            client.post(f"{FOREMAN}/fleetnodes", json=fleet_node("phone")).raise_for_status()
            assert watching.stdout.readline().split()[0] == "phone"
        finally:
            deadline.cancel()
            watching.kill()


def test_wait_for_a_condition(kubectl: Kubectl, client: httpx.Client, node: str) -> None:
    """`wait` sees a value that is there already: its watch begins with the objects."""
    assert "condition met" in kubectl("wait", f"fn/{node}", "--for=jsonpath={.status.phase}=Draining").stdout


def test_api_resources_lists_names_and_short_names(kubectl: Kubectl) -> None:
    """`api-resources` lists every kind with its short name and scope."""
    rows = {line.split()[0]: line.split()[1:] for line in kubectl("api-resources").stdout.splitlines()}
    assert rows["fleetnodes"] == ["fn", "foreman.llmkube.dev/v1alpha1", "false", "FleetNode"]
    assert rows["agentictasks"] == ["at", "foreman.llmkube.dev/v1alpha1", "true", "AgenticTask"]
    assert rows["inferenceservices"] == ["isvc", "inference.llmkube.dev/v1alpha1", "true", "InferenceService"]
    assert rows["configmaps"] == ["cm", "v1", "true", "ConfigMap"]


def test_explain_reads_the_schema(kubectl: Kubectl) -> None:
    """`explain` prints the documentation of a field from the definition."""
    assert "Memory of the machine, in GiB." in kubectl("explain", "fleetnode.status.capability").stdout


def test_can_i_says_yes_to_the_admin(kubectl: Kubectl) -> None:
    """`auth can-i` is answered: the token may do everything."""
    assert kubectl("auth", "can-i", "delete", "agentictasks").stdout == "yes\n"


def test_it_gets_in_over_tls(tmp_path: Path) -> None:
    """The kubeconfig of a plane with TLS carries the CA and a bearer token."""
    with running_plane(tmp_path, tls=True) as plane:
        names = runner(plane, tmp_path)("get", "ns", "-o", "name").stdout.split()
    assert names == ["namespace/default", "namespace/foreman-system"]


def test_namespaces_separate(kubectl: Kubectl, client: httpx.Client) -> None:
    """`-n` and `-A` see one namespace and all; `delete ns` takes everything in it along."""
    kubectl("apply", "-f", "-", given="apiVersion: v1\nkind: Namespace\nmetadata: {name: lab}\n")
    client.post(f"{FOREMAN}/namespaces/lab/agentictasks", json=agentic_task("there")).raise_for_status()
    assert "No resources found" in kubectl("get", "at").stderr
    assert "there" in kubectl("get", "at", "-n", "lab").stdout
    assert "there" in kubectl("get", "at", "-A").stdout
    kubectl("delete", "ns", "lab")
    assert "No resources found" in kubectl("get", "at", "-A").stderr
