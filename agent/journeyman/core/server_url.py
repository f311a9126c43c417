"""Which addresses of a control plane may be talked to with a bearer token."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from journeyman.errors import ConfigError


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_server_url(url: str, *, allow_insecure_http: bool = False) -> str:
    """Returns the base URL of an API server without a trailing slash.

    Args:
        url: what a person wrote; a path is kept, as some gateways put the API below one.
        allow_insecure_http: let the token cross a network in the clear, for a VPN that encrypts by itself.

    Raises:
        ConfigError: it is no http or https URL, it carries a secret, or it would send the token in the clear.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError(f"the server URL {url!r} cannot be read: {error}") from error
    if parts.username is not None or parts.password is not None:
        # The URL itself is not repeated here: it holds the secret.
        raise ConfigError("the server URL holds a user name", "Put the token in a file and set token_file.")
    if parts.scheme not in {"http", "https"} or not host:
        raise ConfigError(
            f"the server URL {url!r} is not of the form https://HOST[:PORT]",
            "Set server to, for instance, https://192.0.2.10:6443.",
        )
    if parts.query or parts.fragment:
        raise ConfigError(f"the server URL {url!r} has a query or a fragment; leave it out")
    if parts.scheme == "http" and not is_loopback(host) and not allow_insecure_http:
        raise ConfigError(
            f"the server URL {url!r} would send the token over the network in the clear",
            "Use https, or set allow_insecure_http = true on a network that encrypts by itself.",
        )
    return url.rstrip("/")
