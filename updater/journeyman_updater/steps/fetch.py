"""FETCH: the signature first, then the artifact; nothing is fetched that is here already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from journeyman_updater.core.fit import check_platform, check_product, check_sequence
from journeyman_updater.errors import Reason, UntrustedError
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import Slot, UpdateRequest
from journeyman_updater.steps.base import Tools

_LONGEST_SIGNATURE_BYTES = 4096


@dataclass(frozen=True)
class Promise:
    """What is known of an artifact before it is here.

    Attributes:
        slot: the release, with the sequence it was signed under.
        signature: the content of the `.minisig` file; empty where unsigned releases are allowed.
        size: of the artifact in bytes, or None if nobody has signed for it.
    """

    slot: Slot
    signature: bytes = b""
    size: int | None = None


def ask_for_promise(tools: Tools, request: UpdateRequest) -> Promise:
    """Fetches the signature and judges all that it says; the artifact is not needed for that.

    Raises:
        UpdaterError: the promise does not fit the request, this host, or the sequence seen before.
    """
    slot = Slot(request.version, request.sha256)
    if tools.allow_unsigned:
        return Promise(slot)
    url = signature_url(request.url)
    signature = tools.fetcher.fetch_bytes(url, limit_bytes=_LONGEST_SIGNATURE_BYTES)
    binding = tools.verifier.promise(signature, pinned_keys(tools), tools.clock.now())
    check_product(binding.product)
    check_platform(binding.os, binding.arch, tools.host)
    check_sequence(binding, highest_seen=tools.records.load().status.sequence)
    _check_request(binding, request)
    return Promise(Slot(request.version, request.sha256, sequence=binding.sequence), signature, binding.size)


def fetch(tools: Tools, request: UpdateRequest, promise: Promise) -> Path:
    """Brings the artifact here, verified.  Undone by deleting what lies in `downloads/`, as `retire` does.

    Raises:
        UpdaterError: the bytes cannot be had, or are not what was promised.
    """
    tools.records.append_once(Step.FETCH, promise.slot, url=request.url)
    tools.ensure_folder(tools.root.downloads)
    artifact = tools.root.downloads / f"{request.sha256}.tar.gz"
    tools.check_room(tools.root.downloads, promise.size or 0)
    tools.fetcher.fetch(
        request.url, artifact, expected_size=promise.size, sha256=request.sha256, progress=tools.progress
    )
    if promise.signature:
        tools.verifier.verify(artifact, promise.signature, pinned_keys(tools), tools.clock.now())
    return artifact


def pinned_keys(tools: Tools) -> tuple[str, ...]:
    """The public keys that may sign: those of the state document, and each `keys/*.pub`.

    The files outlive a state document that has to be made anew.
    """
    folder = tools.root.keys
    files = [folder / name for name in tools.files.names(folder) if name.endswith(".pub")]
    texts = (tools.files.read(path).decode(errors="replace") for path in files)
    return (*tools.records.load().spec.keys, *texts)


def signature_url(url: str) -> str:
    """The artifact's path plus `.minisig`, before any query."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path + ".minisig"))


def _check_request(binding: ReleaseBinding, request: UpdateRequest) -> None:
    if binding.sha256 != request.sha256:
        raise UntrustedError(
            Reason.BAD_SIGNATURE,
            f"the signature is of {binding.sha256[:12]}, and {request.sha256[:12]} was asked for",
            "Publish the .minisig file that was made for this artifact.",
        )
    if not binding.version.same_as(request.version):
        raise UntrustedError(
            Reason.VERSION_MISMATCH,
            f"{binding.version.spelled} was signed, and {request.version.spelled} was asked for",
            "Correct the version of the AgentRelease.",
        )
