"""The files by which the admin reaches a plane: token, kubeconfig, address."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import Any

import yaml

from journeyman_updater.contract import write_durably


def admin_token(path: Path) -> str:
    """The token of the plane; it is made at the first start, 0600."""
    try:
        found = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        found = ""
    if found:
        return found
    token = secrets.token_urlsafe(32)
    write_durably(path, f"{token}\n".encode())
    return token


def write_kubeconfig(path: Path, *, url: str, token: str, ca_pem: bytes | None) -> None:
    """Writes a kubeconfig that carries all it needs, 0600.

    Args:
        path: the file.
        url: the plane's URL.
        token: the bearer token.
        ca_pem: the certificate of the CA to trust; None for plain http.
    """
    cluster: dict[str, Any] = {"server": url}
    if ca_pem is None:
        # Over plain http kubectl leaves out the token, and everything else of `users`; what the URL carries
        # it sends as Basic authentication.  The token's alphabet needs no escaping there.
        cluster["server"] = url.replace("://", f"://admin:{token}@")
    else:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "journeyman", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [
            {
                "name": "journeyman",
                "context": {"cluster": "journeyman", "user": "admin", "namespace": "default"},
            }
        ],
        "current-context": "journeyman",
    }
    write_durably(path, yaml.safe_dump(config, sort_keys=False).encode())
