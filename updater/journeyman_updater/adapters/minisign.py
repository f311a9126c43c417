"""Verifies release signatures in the format of minisign; keys and signing are in `minisign_keys`.

Format: https://jedisct1.github.io/minisign/#signature-format.  Only prehashed signatures (`ED`: Ed25519 over
BLAKE2b-512 of the file) are taken; the legacy form `Ed` would need the whole file in memory.  Whether the
binding fits the request, the host and the sequence seen before is decided in core/fit.py.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from journeyman_updater.adapters.minisign_keys import PublicKey
from journeyman_updater.core.fit import check_expiry
from journeyman_updater.errors import Reason, UntrustedError
from journeyman_updater.model.binding import ReleaseBinding

LONGEST_SIGNATURE_BYTES = 4096
_PREHASHED = b"ED"
_LEGACY = b"Ed"
_TRUSTED = "trusted comment: "
_LINES = 4
_SIGNATURE_BYTES = 2 + 8 + 64
_CHUNK_BYTES = 1024**2


@dataclass(frozen=True)
class Signature:
    """A `.minisig` file.

    Attributes:
        key_id: eight bytes that name the key.
        signature: over the BLAKE2b-512 of the file.
        comment: the trusted comment.
        global_signature: over signature and comment, by the same key.
    """

    key_id: bytes
    signature: bytes
    comment: str
    global_signature: bytes

    @classmethod
    def parse(cls, data: bytes) -> Signature:
        """Reads a `.minisig` file.

        Raises:
            UntrustedError: BadSignature; it is none, or a legacy one.
        """
        if len(data) > LONGEST_SIGNATURE_BYTES:
            raise _bad("the signature file is too long to be one")
        try:
            lines = data.decode().splitlines()
            if len(lines) != _LINES or not lines[2].startswith(_TRUSTED):
                raise _bad("the signature file has not the four lines of a minisign signature")
            body = base64.b64decode(lines[1], validate=True)
            global_signature = base64.b64decode(lines[3], validate=True)
        except (UnicodeDecodeError, binascii.Error) as error:
            raise _bad(f"the signature file is damaged: {error}") from error
        if body[:2] == _LEGACY:
            raise _bad("the signature is of the legacy kind", "Sign with minisign 0.10 or newer, without -l.")
        if body[:2] != _PREHASHED or len(body) != _SIGNATURE_BYTES:
            raise _bad("the signature is of an unknown kind")
        return cls(body[2:10], body[10:], lines[2].removeprefix(_TRUSTED), global_signature)


class MinisignVerifier:
    """Implements the port SignatureVerifier."""

    def promise(self, signature: bytes, keys: tuple[str, ...], now: datetime) -> ReleaseBinding:
        """Reads what a signature promises, without the artifact.

        The global signature already proves who promised it.  So a replay, an expired signature or a wrong
        platform is refused before a byte of the artifact is fetched, and its size is known.

        Args:
            signature: the content of the `.minisig` file.
            keys: the pinned public keys, as key files or as their base64 lines.
            now: the clock of this host, by which expiry is judged.

        Raises:
            UntrustedError: BadSignature, Expired.
            HostError: ClockWrong.
        """
        binding, _, _ = _open(signature, keys)
        check_expiry(binding, now=now)
        return binding

    def verify(
        self, artifact: Path, signature: bytes, keys: tuple[str, ...], now: datetime
    ) -> ReleaseBinding:
        """Verifies a signature over an artifact; see the port.

        Raises:
            UntrustedError: BadSignature, Expired.
            HostError: ClockWrong.
            OSError: the artifact cannot be read.
        """
        binding, parsed, key = _open(signature, keys)
        check_expiry(binding, now=now)
        blake2b, sha256, size = _digests(artifact)
        if not key.is_signed(parsed.signature, blake2b):
            raise _bad("the signature is not of this file")
        if (sha256, size) != (binding.sha256, binding.size):
            raise _bad("the signature's comment speaks of another file")
        return binding


def _open(signature: bytes, keys: tuple[str, ...]) -> tuple[ReleaseBinding, Signature, PublicKey]:
    parsed = Signature.parse(signature)
    pinned = [PublicKey.parse(text) for text in keys]
    known = [key for key in pinned if key.key_id == parsed.key_id]
    if not known:
        raise _bad(
            f"the key {PublicKey.spell_id(parsed.key_id)} is not pinned here",
            "Pin the new key before releases are signed with it.",
        )
    signed = parsed.signature + parsed.comment.encode()
    key = next((key for key in known if key.is_signed(parsed.global_signature, signed)), None)
    if key is None:
        raise _bad("the trusted comment was changed after it was signed")
    return ReleaseBinding.from_comment(parsed.comment), parsed, key


def _digests(path: Path) -> tuple[bytes, str, int]:
    blake2b, sha256, size = hashlib.blake2b(digest_size=64), hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            blake2b.update(chunk)
            sha256.update(chunk)
            size += len(chunk)
    return blake2b.digest(), sha256.hexdigest(), size


def _bad(
    message: str, advice: str = "Get the .minisig file that was made for this artifact."
) -> UntrustedError:
    return UntrustedError(Reason.BAD_SIGNATURE, message, advice)
