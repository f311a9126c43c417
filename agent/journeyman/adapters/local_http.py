"""HTTP clients for servers on this machine.

httpx is imported with the first of them, as no server is asked before the agent is ready.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx


def local_client(url: str, **options: Any) -> httpx.AsyncClient:
    """A client for one server; the caller closes it.

    No proxy of the environment stands between, and the certificates of the world, which take longer to
    load than most answers take, are loaded for https alone.

    Args:
        url: of the server.
        options: of `httpx.AsyncClient`.
    """
    import httpx

    if not url.startswith("https:"):
        options["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(trust_env=False, **options)
