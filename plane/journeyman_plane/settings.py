"""All that can be set about a plane, in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PlaneSettings:
    """Settings of the embedded control plane.

    Attributes:
        data_dir: database, token, keys, artifacts and kubeconfig; made 0700 where there is none.
        host: the address to listen on; anything but loopback needs `tls`.
        port: the port to listen on; 0 takes a free one.
        tls: serve https with a certificate of an own CA.
        tls_names: further names and addresses for the certificate, beside those of loopback.
        history: how many changes a watch may lag behind.
        largest_body_bytes: requests with a larger body are refused with 413.
        largest_artifact_bytes: the same for each file of the artifact store; the updater's cap is this, too.
        bookmark_seconds: how often a quiet watch is told how far it has seen.
        longest_watch_seconds: a watch ends after this time, or sooner where its client asks for it.
        reconcile_tick_seconds: how long a decision that only time brings may be late.
        stop_grace_seconds: how long a stop waits for requests that are being served.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 6480
    tls: bool = False
    tls_names: tuple[str, ...] = ()
    history: int = 10_000
    largest_body_bytes: int = 3 * 1024 * 1024
    largest_artifact_bytes: int = 512 * 1024 * 1024
    bookmark_seconds: float = 30.0
    longest_watch_seconds: float = 3600.0
    reconcile_tick_seconds: float = 1.0
    stop_grace_seconds: float = 1.0

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.data_dir / "plane.db"

    @property
    def token_file(self) -> Path:
        """The admin's bearer token, 0600."""
        return self.data_dir / "admin.token"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig for the admin, 0600."""
        return self.data_dir / "admin.kubeconfig"

    @property
    def address_file(self) -> Path:
        """The URL of the running plane; written once it listens."""
        return self.data_dir / "address"

    @property
    def artifacts(self) -> Path:
        """The artifact store, `<version>/<name>`."""
        return self.data_dir / "artifacts"

    @property
    def release_key(self) -> Path:
        """The secret key that signs releases, 0600."""
        return self.data_dir / "release.key"

    @property
    def release_public_key(self) -> Path:
        """Its public half, for every host of the fleet."""
        return self.data_dir / "release.pub"

    @property
    def lock_file(self) -> Path:
        """Held by flock while a plane runs on this folder."""
        return self.data_dir / "plane.lock"

    @property
    def ca_file(self) -> Path:
        """The certificate of the CA, for clients."""
        return self.data_dir / "ca.crt"
