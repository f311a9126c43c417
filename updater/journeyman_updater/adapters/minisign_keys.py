"""Key pairs of minisign, in its own file formats, and signing with them.

Secret keys are read and written unencrypted, as `minisign -G -W` does; their protection is the file's mode.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from journeyman_updater.errors import Reason, RequestError

_UNTRUSTED = "untrusted comment: "
_PUBLIC_BYTES = 2 + 8 + 32
# Algorithm, key derivation, checksum algorithm, then salt and the two limits of a password that there is not.
_PLAIN_HEADER = b"Ed" + b"\0\0" + b"B2" + bytes(32 + 8 + 8)
_SECRET_BYTES = len(_PLAIN_HEADER) + 8 + 64 + 32


@dataclass(frozen=True)
class PublicKey:
    """A public key.

    Attributes:
        key_id: eight bytes that name it.
        raw: the 32 bytes of the Ed25519 key.
    """

    key_id: bytes
    raw: bytes

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Reads a public key file, or its base64 line alone.

        Raises:
            RequestError: BadRequest; it is no minisign public key.
        """
        body = _decode(text)
        if len(body) != _PUBLIC_BYTES or body[:2] != b"Ed":
            raise RequestError(
                Reason.BAD_REQUEST,
                f"{text.strip()[:60]!r} is no minisign public key",
                "Give the content of the .pub file, or its line that begins with RW.",
            )
        return cls(body[2:10], body[10:])

    @staticmethod
    def spell_id(key_id: bytes) -> str:
        """The key's name as minisign prints it."""
        return f"{int.from_bytes(key_id, 'little'):016X}"

    def to_line(self) -> str:
        """The base64 line."""
        return base64.b64encode(b"Ed" + self.key_id + self.raw).decode()

    def to_file(self) -> str:
        """The content of a public key file."""
        return f"{_UNTRUSTED}minisign public key {self.spell_id(self.key_id)}\n{self.to_line()}\n"

    def is_signed(self, signature: bytes, data: bytes) -> bool:
        """Whether this key made that signature over `data`."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class SecretKey:
    """A secret key.

    Attributes:
        key_id: eight bytes that name it and its public half.
        seed: the 32 secret bytes.
    """

    key_id: bytes
    seed: bytes

    @classmethod
    def generate(cls) -> SecretKey:
        """A new key from the system's randomness."""
        return cls(secrets.token_bytes(8), secrets.token_bytes(32))

    @classmethod
    def parse(cls, text: str) -> SecretKey:
        """Reads an unencrypted secret key file.

        Raises:
            RequestError: BadRequest; it is none, or is protected by a password.
        """
        body = _decode(text)
        if len(body) != _SECRET_BYTES or body[:6] != _PLAIN_HEADER[:6]:
            raise RequestError(
                Reason.BAD_REQUEST,
                "this is no unencrypted minisign secret key",
                "Make one with `minisign -G -W`, or take the password away with `minisign -C -W`.",
            )
        start = len(_PLAIN_HEADER)
        return cls(body[start : start + 8], body[start + 8 : start + 40])

    @property
    def public(self) -> PublicKey:
        """The public half."""
        raw = Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        return PublicKey(self.key_id, raw)

    def to_file(self) -> str:
        """The content of a secret key file; write it with mode 0600."""
        # minisign leaves the checksum of an unencrypted key empty, and does not look at it.
        body = _PLAIN_HEADER + self.key_id + self.seed + self.public.raw + bytes(32)
        return f"{_UNTRUSTED}minisign encrypted secret key\n{base64.b64encode(body).decode()}\n"

    def sign(self, path: Path, comment: str) -> bytes:
        """Signs a file, prehashed.

        Args:
            path: the file.
            comment: the trusted comment, one line; `ReleaseBinding.to_comment` makes it for a release.

        Returns:
            The content of its `.minisig` file.
        """
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=64)).digest()
        private = Ed25519PrivateKey.from_private_bytes(self.seed)
        signature = private.sign(digest)
        global_signature = private.sign(signature + comment.encode())
        lines = (
            f"{_UNTRUSTED}signature from journeyman release key",
            base64.b64encode(b"ED" + self.key_id + signature).decode(),
            f"trusted comment: {comment}",
            base64.b64encode(global_signature).decode(),
        )
        return ("\n".join(lines) + "\n").encode()


def _decode(text: str) -> bytes:
    lines = text.strip().splitlines()
    try:
        return base64.b64decode(lines[-1].strip(), validate=True) if lines else b""
    except (binascii.Error, ValueError):
        return b""
