"""What `journeyman release` does: judges, signs and uploads an artifact, and steers its AgentRelease.

Everything that a host would refuse is refused here first, before anything is uploaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.client import EmbeddedPlane, embedded_plane, with_server
from journeyman.errors import (
    ConfigError,
    ConflictError,
    ControlPlaneError,
    HostError,
    InvalidError,
    NotFoundError,
)
from journeyman.model.agent_release import AgentRelease
from journeyman.model.fleet_node import LABEL_AGENT, AgentKind
from journeyman.model.resources import AGENT_RELEASES
from journeyman.ports import Collection, ControlPlane, JsonObject
from journeyman.settings import Settings
from journeyman_updater.publish import Candidate, UpdaterError, check_signature, examine, sign

RELEASES = Collection(AGENT_RELEASES.group, AGENT_RELEASES.version, AGENT_RELEASES.plural)
SIGNATURE_SUFFIX = ".minisig"
DEFAULT_DAYS = 365


@dataclass(frozen=True)
class Publication:
    """What is published, and how it is to be rolled out.

    Attributes:
        artifact: the tar.gz that `scripts/release build` made.
        key_file: an unencrypted minisign secret key; None for that of the embedded plane of this host.
        sequence: the order of releases; the manifest's own where it is None.
        expires_days: how long the signature permits an update; a year where it is None.
        url_base: where hosts reach the artifact store, if that is not the URL of the server.
        approve: whether the rollout begins at once.
        concurrency: how many nodes are updated at a time.
        min_healthy_seconds: how long a node must be healthy on it before the next one begins.
        timeout_seconds: how long a node may take.
        labels: that a node must carry, beside that of each of our agents.
    """

    artifact: Path
    key_file: Path | None = None
    sequence: int | None = None
    expires_days: int | None = None
    url_base: str = ""
    approve: bool = False
    concurrency: int = 1
    min_healthy_seconds: int = 60
    timeout_seconds: int = 600
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def wants_new_signature(self) -> bool:
        """Whether a signature that lies beside the artifact would not be what was asked for."""
        return (self.key_file, self.sequence, self.expires_days) != (None, None, None)


@dataclass(frozen=True)
class Published:
    """What `publish` did.

    Attributes:
        candidate: the artifact.
        signed_by: the file of the key, or the signature that was there.
        url: from which hosts fetch it.
        release: the AgentRelease as stored.
        is_new: whether the AgentRelease was made now, or has got an artifact more.
    """

    candidate: Candidate
    signed_by: Path
    url: str
    release: JsonObject
    is_new: bool


async def publish(plane: HttpControlPlane, settings: Settings, publication: Publication) -> Published:
    """Judges, signs and uploads an artifact, and creates or extends its AgentRelease.

    It can be run again after whatever went wrong: what is done already is found to be done.

    Raises:
        InvalidError: each host would refuse the artifact; nothing was uploaded.
        ConfigError: it is not signed and there is no key, or the server is no plane of ours.
        ConflictError: other bytes were published under that version.
        ControlPlaneError: the plane refuses it, or cannot be reached.
    """
    candidate, signature, signed_by = _judged_and_signed(settings, publication)
    version = candidate.manifest.version.canonical
    path = f"/artifacts/{quote(version)}/{quote(_file_name(candidate))}"
    base = publication.url_base.rstrip("/") or with_server(settings).server or ""
    body = _agent_release(candidate, base + path, publication)
    # Before the upload, as a conflict there would leave an artifact that nothing names.
    existing = await _existing(plane, body["metadata"]["name"])
    if existing is not None:
        _refuse_other_bytes(existing, candidate)
    try:
        await plane.put_file(path, candidate.path)
        await plane.put_file(path + SIGNATURE_SUFFIX, signature)
    except ControlPlaneError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise ConfigError(
            "this control plane has no artifact store",
            "Host the artifact elsewhere, and apply its agentrelease.yaml; docs/releases.md shows how.",
        ) from error
    release, is_new = await _create_or_extend(plane, body, existing)
    if publication.approve and not release["spec"].get("approved"):
        release = await change(plane, release["metadata"]["name"], approved=True)
    return Published(candidate, signed_by, base + path, release, is_new)


async def change(plane: ControlPlane, name: str, **spec: bool) -> JsonObject:
    """Changes fields of a release's spec, such as `approved` and `paused`.

    Raises:
        NotFoundError: there is no such release.
    """
    return await plane.patch(RELEASES.named(name), {"spec": spec})


def _judged_and_signed(settings: Settings, publication: Publication) -> tuple[Candidate, Path, Path]:
    artifact, now = publication.artifact, datetime.now(UTC)
    beside = artifact.with_name(artifact.name + SIGNATURE_SUFFIX)
    try:
        candidate = examine(artifact)
        if beside.exists() and not publication.wants_new_signature:
            check_signature(candidate, beside.read_bytes(), now)
            return candidate, beside, beside
        key_file = publication.key_file or _key_of(embedded_plane(settings))
        expires = now.replace(microsecond=0) + timedelta(days=publication.expires_days or DEFAULT_DAYS)
        signature = sign(candidate, key_file.read_text(), sequence=publication.sequence, expires=expires)
        beside.write_bytes(signature)
    except UpdaterError as error:
        raise InvalidError(f"{artifact.name}: {error.reason}: {error.message}", error.advice) from error
    except (OSError, ValueError) as error:
        raise HostError(f"{artifact}: {error}") from error
    return candidate, beside, key_file


def _key_of(embedded: EmbeddedPlane) -> Path:
    if not embedded.release_key.exists():
        raise ConfigError(
            "the artifact is not signed, and the plane that keeps the release key is not on this host",
            "Name the secret key with --key FILE, or sign it before with `scripts/release sign`.",
        )
    return embedded.release_key


def _file_name(candidate: Candidate) -> str:
    manifest = candidate.manifest
    return f"{manifest.product}-{manifest.version.canonical}-{manifest.os}-{manifest.arch}.tar.gz"


def _agent_release(candidate: Candidate, url: str, publication: Publication) -> dict[str, Any]:
    manifest = candidate.manifest
    artifact = {"os": manifest.os, "arch": manifest.arch, "url": url, "sha256": candidate.sha256}
    return {
        "apiVersion": AGENT_RELEASES.api_version,
        "kind": AGENT_RELEASES.kind,
        "metadata": {"name": f"{AgentKind.FOREMAN_AGENT.value}-{manifest.version.canonical}".lower()},
        "spec": {
            "agentKind": AgentKind.FOREMAN_AGENT.value,
            "version": manifest.version.spelled,
            "artifacts": [artifact],
            "selector": {"matchLabels": {LABEL_AGENT: "true", **publication.labels}},
            "concurrency": publication.concurrency,
            "approved": publication.approve,
            "healthGate": {
                "minHealthySeconds": publication.min_healthy_seconds,
                "timeoutSeconds": publication.timeout_seconds,
            },
        },
    }


async def _existing(plane: ControlPlane, name: str) -> JsonObject | None:
    try:
        return await plane.get(RELEASES.named(name))
    except NotFoundError:
        return None


def _refuse_other_bytes(existing: JsonObject, candidate: Candidate) -> None:
    release, manifest = AgentRelease.from_wire(existing), candidate.manifest
    artifact = release.spec.artifact_for(manifest.os, manifest.arch)
    if artifact is not None and artifact.sha256 != candidate.sha256:
        raise ConflictError(
            f"{manifest.version.spelled} for {manifest.os}/{manifest.arch} was published with other bytes "
            f"({artifact.sha256[:12]})",
            "Build it under a new version: what was published once never changes.",
        )


async def _create_or_extend(
    plane: ControlPlane, body: dict[str, Any], existing: JsonObject | None
) -> tuple[JsonObject, bool]:
    if existing is None:
        return await plane.create(RELEASES, body), True
    [artifact] = body["spec"]["artifacts"]
    while True:
        artifacts = existing["spec"].get("artifacts") or []
        if any(item["sha256"] == artifact["sha256"] for item in artifacts):
            return existing, False
        version = existing["metadata"]["resourceVersion"]
        extended = {"metadata": {"resourceVersion": version}, "spec": {"artifacts": [*artifacts, artifact]}}
        try:
            return await plane.patch(RELEASES.named(body["metadata"]["name"]), extended), True
        except ConflictError:
            # The plane writes the status of the same object; what was read is too old, and no more than that.
            existing = await plane.get(RELEASES.named(body["metadata"]["name"]))
