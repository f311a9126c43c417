from __future__ import annotations

from typing import Any

import pytest

from journeyman.model.agent import AgentPersona
from journeyman.model.agentic_task import AgenticTask
from journeyman.model.fleet_node import FleetNode
from journeyman_plane.core.matcher import lasting_mismatch, mismatch, requirement_of

NODE = FleetNode.from_wire(
    {
        "metadata": {"name": "desk", "labels": {"site": "home"}},
        "spec": {"nodeName": "desk", "roles": ["worker", "verifier"]},
        "status": {
            "capability": {
                "accelerator": "metal",
                "totalRAMGB": 32,
                "availableRAMGB": 16,
                "installedModels": ["smol", "coder-svc"],
                "maxContextTokens": 8192,
            }
        },
    }
)


def task(required: dict[str, Any], **spec: Any) -> AgenticTask:
    body = {"kind": "freeform", "requiredCapability": required, **spec}
    return AgenticTask.from_wire({"metadata": {"name": "t", "namespace": "default"}, "spec": body})


def persona(**spec: Any) -> AgentPersona:
    body = {"role": "coder", "tools": ["bash"], **spec}
    return AgentPersona.from_wire({"metadata": {"name": "a", "namespace": "default"}, "spec": body})


@pytest.mark.parametrize(
    ("required", "lacking"),
    [
        ({}, ""),
        ({"accelerator": "any"}, ""),
        ({"accelerator": "metal"}, ""),
        ({"accelerator": "cuda"}, "accelerator"),
        ({"minRAMGB": 16}, ""),
        ({"minRAMGB": 17}, "memory"),
        ({"minContextTokens": 8192}, ""),
        ({"minContextTokens": 8193}, "context"),
        ({"nodeSelector": {"site": "home"}}, ""),
        ({"nodeSelector": {"site": "office"}}, "labels"),
        ({"nodeSelector": {"rack": "1"}}, "labels"),
        ({"roles": ["verifier"]}, ""),
        ({"roles": ["verifier", "gpu"]}, "roles"),
    ],
    ids=str,
)
def test_each_criterion_of_a_task(required: dict[str, Any], lacking: str) -> None:
    """A node fits when it meets every criterion, at the bound included."""
    assert mismatch(requirement_of(task(required), None), NODE) == lacking


@pytest.mark.parametrize(
    ("spec", "lacking"),
    [
        ({"model": "smol"}, ""),
        ({"model": "smo"}, "model"),
        ({"inferenceServiceRef": {"name": "coder-svc"}}, ""),
        ({"model": "other", "inferenceServiceRef": {"name": "coder-svc"}}, "model"),
        ({}, ""),
    ],
    ids=str,
)
def test_a_required_model_must_be_installed_under_its_literal_name(
    spec: dict[str, Any], lacking: str
) -> None:
    """The persona's model, else its InferenceService, must be listed; memory is then not asked about."""
    required = {"requiresModelInstalled": True, "minRAMGB": 1000}
    assert mismatch(requirement_of(task({}), persona(requiredCapability=required, **spec)), NODE) == lacking


def test_a_personas_requirement_replaces_that_of_the_task() -> None:
    """With an Agent the task's own requirement is not looked at, even if the Agent's is empty."""
    demanding = task({"minRAMGB": 1000})
    assert mismatch(requirement_of(demanding, None), NODE) == "memory"
    assert mismatch(requirement_of(demanding, persona()), NODE) == ""
    assert mismatch(requirement_of(task({}), persona(requiredCapability={"roles": ["gpu"]})), NODE) == "roles"


@pytest.mark.parametrize(("ram", "lacking"), [(16, ""), (17, ""), (32, ""), (33, "memory")])
def test_memory_that_is_merely_taken_is_no_lasting_lack(ram: int, lacking: str) -> None:
    """Free memory comes and goes with every beat; a waiting task names only what will not pass."""
    assert lasting_mismatch(requirement_of(task({"minRAMGB": ram}), None), NODE) == lacking


def test_a_job_asks_only_for_labels_and_roles() -> None:
    """A Job runs elsewhere in the cluster, so the hardware of the node that starts it does not matter."""
    job = {"execution": {"mode": "Job"}}
    hungry = {"minRAMGB": 1000, "accelerator": "cuda", "minContextTokens": 10**6}
    assert mismatch(requirement_of(task({}), persona(requiredCapability=hungry, **job)), NODE) == ""
    choosy = {"nodeSelector": {"site": "office"}}
    assert mismatch(requirement_of(task({}), persona(requiredCapability=choosy, **job)), NODE) == "labels"


def test_a_node_without_an_accelerator_fits_no_task_that_names_one() -> None:
    """An accelerator that is not reported is not assumed."""
    bare = FleetNode.from_wire({"metadata": {"name": "n"}, "spec": {"nodeName": "n"}})
    assert mismatch(requirement_of(task({"accelerator": "metal"}), None), bare) == "accelerator"
    assert mismatch(requirement_of(task({"accelerator": "any"}), None), bare) == ""
