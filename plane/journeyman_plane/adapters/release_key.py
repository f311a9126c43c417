"""The key pair that signs the releases which this plane publishes, in the formats of minisign."""

from __future__ import annotations

from pathlib import Path

from journeyman.errors import HostError
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.contract import write_durably
from journeyman_updater.errors import RequestError


def ensure_release_key(secret_file: Path, public_file: Path) -> None:
    """Makes the pair at the first start of the plane, and the public half anew where it is missing.

    Args:
        secret_file: unencrypted, 0600: a plane has nobody who could type a password.
        public_file: given to every host of the fleet.

    Raises:
        HostError: the secret key cannot be read.
    """
    if not secret_file.exists():
        write_durably(secret_file, SecretKey.generate().to_file().encode())
    try:
        key = SecretKey.parse(secret_file.read_text())
    except (RequestError, OSError, ValueError) as error:
        raise HostError(
            f"the release key {secret_file} cannot be read: {error}",
            "Restore it, or delete it: then a new one is made that every host must be given.",
        ) from error
    public = key.public.to_file()
    if not public_file.exists() or public_file.read_text() != public:
        write_durably(public_file, public.encode(), mode=0o644)
