"""Judges an artifact that lies on this host, without a network and without running any of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from journeyman_updater.adapters.host_facts import this_host
from journeyman_updater.adapters.minisign import LONGEST_SIGNATURE_BYTES, MinisignVerifier
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot
from journeyman_updater.core.fit import check_platform, check_product, check_python, check_sequence
from journeyman_updater.errors import Reason, RequestError, UntrustedError, UpdaterError
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.manifest import Manifest
from journeyman_updater.publish import check_signature, read
from journeyman_updater.run import compose
from journeyman_updater.settings import Settings
from journeyman_updater.steps.fetch import pinned_keys

# What callers need to speak of it.
__all__ = ["UpdaterError", "Verified", "verify"]


@dataclass(frozen=True)
class Verified:
    """An artifact that this host would stage; what is left is to ask its program who it is.

    Attributes:
        promise: what its signature promises.
        manifest: what it says of itself.
    """

    promise: ReleaseBinding
    manifest: Manifest


def verify(artifact: Path, *, root: StateRoot, keys: tuple[str, ...] = ()) -> Verified:
    """Verifies signature, promise, archive and fit, in the order of an update.

    Args:
        artifact: the tar.gz; its signature lies beside it as `.minisig`.
        root: the state root whose pinned keys are trusted, and whose sequence must not be undercut.
        keys: public keys to trust in their place; the state root is not asked then.

    Raises:
        UpdaterError: this host would refuse it; the reason is that of an update.
        ValueError: `updater.json` or `state.json` cannot be used.
        OSError: it cannot be read, or there is no room to unpack it.
    """
    highest_seen = 0
    if not keys:
        tools = compose(root, Settings.load(root.updater_settings), lambda _here, _total: None)
        keys, highest_seen = pinned_keys(tools), tools.records.load().status.sequence
    if not keys:
        raise RequestError(
            Reason.BAD_REQUEST,
            f"no key is pinned in {root.path}, so no signature can be trusted",
            "Name the public key of whoever signs with --key FILE.",
        )
    now, host, signature = SystemClock().now(), this_host(), _signature_of(artifact)
    promise = MinisignVerifier().verify(artifact, signature, keys, now)
    check_product(promise.product)
    check_platform(promise.os, promise.arch, host)
    check_sequence(promise, highest_seen=highest_seen)
    candidate = read(artifact)
    check_signature(candidate, signature, now)
    check_python(candidate.manifest.python_min, candidate.manifest.python_max, host)
    return Verified(promise, candidate.manifest)


def _signature_of(artifact: Path) -> bytes:
    path = artifact.with_name(artifact.name + ".minisig")
    try:
        with path.open("rb") as file:
            return file.read(LONGEST_SIGNATURE_BYTES + 1)
    except FileNotFoundError as error:
        raise UntrustedError(
            Reason.BAD_SIGNATURE, f"there is no {path.name} beside it", "Put the signature there."
        ) from error
