"""What `journeyman preflight` asks a cluster before a node of ours joins it, or follows its releases."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from itertools import chain

from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.client import NODES, control_plane
from journeyman.core.cluster_registrations import registration_questions
from journeyman.core.node_permissions import FOR_CERTIFICATES, FOR_SERVICES, questions
from journeyman.core.release_selection import excluding_patch, that_would_select
from journeyman.errors import ConfigError, NotFoundError, UnauthorizedError
from journeyman.model.agent_release import AgentRelease
from journeyman.model.fleet_node import LABEL_AGENT, FleetNode
from journeyman.model.inference import PLACED_ON, InferenceService
from journeyman.model.resources import AGENT_RELEASES, INFERENCE_SERVICES
from journeyman.ports import Collection, JsonObject
from journeyman.settings import Settings

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RELEASES = Collection(AGENT_RELEASES.group, AGENT_RELEASES.version, AGENT_RELEASES.plural)


@dataclass(frozen=True)
class Selecting:
    """A release of others that would select the node.

    Attributes:
        name: of the AgentRelease.
        version: what it would have the node run.
        patch: what excludes nodes of ours from it.
    """

    name: str
    version: str
    patch: JsonObject


@dataclass
class Findings:
    """What was found.

    Attributes:
        node: the name of the FleetNode.
        allowed: permissions that are there, a line each.
        missing: permissions that are not.
        releases: that would select the node.
        services: that it would register as reachable, `namespace/name`.
    """

    node: str
    allowed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    releases: list[Selecting] = field(default_factory=list)
    services: list[str] = field(default_factory=list)


async def preflight(settings: Settings) -> Findings:
    """Asks for each permission, and which releases would select the node.

    Args:
        settings: name the control plane with the node's credential, and the node.

    Raises:
        ConfigError: the node has no name yet.
        ControlPlaneError: it does not answer.
    """
    if settings.node_name is None:
        raise ConfigError("the node has no name yet", "Name it with --node-name.")
    found = Findings(settings.node_name)
    async with control_plane(settings) as plane:
        asked = [questions(settings.node_name, each) for each in settings.namespaces_of_tasks]
        asked += [
            questions(settings.node_name, each, FOR_SERVICES) for each in settings.namespaces_of_services
        ]
        if settings.reach is not None:
            services = await _services(plane, settings)
            found.services = ["/".join(each) for each in services]
            asked.append(registration_questions(services, settings.namespaces_of_services))
        if settings.certificate_file is not None:
            asked.append(questions(settings.node_name, "", FOR_CERTIFICATES))
        # What is no namespace's is the same question for each of them.
        for question in dict.fromkeys(chain.from_iterable(asked)):
            reply = await plane.post(REVIEWS, question.to_wire())
            allowed = (reply.get("status") or {}).get("allowed") is True
            (found.allowed if allowed else found.missing).append(str(question))
        labels = await _labels(plane, settings)
        if f"list {RELEASES.plural}" in found.missing:
            return found
        releases = [AgentRelease.from_wire(item) for item in (await plane.list(RELEASES)).items]
    found.releases = [
        Selecting(each.metadata.name, each.spec.version, excluding_patch(each))
        for each in that_would_select(releases, labels)
    ]
    return found


async def _services(plane: HttpControlPlane, settings: Settings) -> list[tuple[str, str]]:
    """The services that the node would register, as far as they are known by name, sorted."""
    listed = [each for each in settings.fleet_service_allow if not set(each) & set("*?[")]
    found = {(namespace, name) for namespace, _, name in (each.partition("/") for each in listed)}
    for namespace in settings.namespaces_of_services:
        collection = Collection(
            INFERENCE_SERVICES.group, INFERENCE_SERVICES.version, INFERENCE_SERVICES.plural, namespace
        )
        with contextlib.suppress(UnauthorizedError):
            for item in (await plane.list(collection)).items:
                meta = InferenceService.from_wire(item).metadata
                if meta.annotations.get(PLACED_ON) == settings.node_name:
                    found.add((namespace, meta.name))
    return sorted(found)


async def _labels(plane: HttpControlPlane, settings: Settings) -> dict[str, str]:
    """The labels that the node carries, or will carry."""
    wanted = {**settings.node_labels, LABEL_AGENT: "true"}
    try:
        node = FleetNode.from_wire(await plane.get(NODES.named(settings.node_name or "")))
    except (NotFoundError, UnauthorizedError):
        return wanted
    return {**node.metadata.labels, **wanted}
