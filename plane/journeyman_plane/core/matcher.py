"""Whether a node has what a task asks for; whether it is free is `bookings`' question."""

from __future__ import annotations

from dataclasses import dataclass

from journeyman.model.agent import AgentPersona
from journeyman.model.agentic_task import AgenticTask, RequiredAccelerator, RequiredCapability
from journeyman.model.fleet_node import FleetNode


@dataclass(frozen=True)
class Requirement:
    """What is asked of a node, as a hashable value: a thousand like tasks are matched once.

    Args:
        labels: labels that the node must have, literally.
        roles: roles that the node must have, all of them.
        hardware: what the node itself must offer, or None for a Job, which runs elsewhere.
    """

    labels: tuple[tuple[str, str], ...]
    roles: tuple[str, ...]
    hardware: HardwareRequirement | None


@dataclass(frozen=True)
class HardwareRequirement:
    """The part of a requirement that is about the machine.

    Args:
        accelerator: the one that is needed, or `any`.
        model: must stand literally in installedModels; "" is any model, None is no model at all.
        ram_gib: memory that must be available, in GiB.
        context_tokens: context that the node must offer, in tokens.
    """

    accelerator: str
    model: str | None
    ram_gib: int
    context_tokens: int


def requirement_of(task: AgenticTask, persona: AgentPersona | None) -> Requirement:
    """Returns what the task asks for.  A persona's requirement replaces the task's own altogether."""
    required = task.spec.required_capability
    if persona is not None:
        required = persona.spec.required_capability or RequiredCapability()
    hardware = None
    if persona is None or not persona.runs_as_job:
        model_name = persona.model_name if persona else task.spec.model_ref
        hardware = HardwareRequirement(
            accelerator=required.accelerator,
            model=model_name if required.requires_model_installed else None,
            ram_gib=required.min_ram_gb,
            context_tokens=required.min_context_tokens,
        )
    return Requirement(tuple(sorted(required.node_selector.items())), required.roles, hardware)


def mismatch(requirement: Requirement, node: FleetNode) -> str:
    """Returns in one word what the node lacks, or "" where it fits."""
    if any(node.metadata.labels.get(key) != value for key, value in requirement.labels):
        return "labels"
    if not set(requirement.roles) <= set(node.spec.roles):
        return "roles"
    return _hardware_mismatch(requirement.hardware, node) if requirement.hardware else ""


def lasting_mismatch(requirement: Requirement, node: FleetNode) -> str:
    """Returns what the node lacks, leaving out memory that it has and only does not have free now."""
    lacking = mismatch(requirement, node)
    hardware = requirement.hardware
    if lacking == "memory" and hardware and hardware.ram_gib <= node.status.capability.total_ram_gb:
        return ""
    return lacking


def _hardware_mismatch(required: HardwareRequirement, node: FleetNode) -> str:
    capability = node.status.capability
    if required.accelerator not in (RequiredAccelerator.ANY, capability.accelerator):
        return "accelerator"
    if required.context_tokens > capability.max_context_tokens:
        return "context"
    if required.model is None:
        return "memory" if required.ram_gib > capability.available_ram_gb else ""
    # An installed model is its own proof that it fits, so memory is not asked about again.
    installed = capability.installed_models
    return "" if required.model in installed or (not required.model and installed) else "model"
