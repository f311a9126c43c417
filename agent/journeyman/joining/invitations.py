"""What the admin of a plane does for those who are to join: mints join tokens, and revokes credentials."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.client import control_plane, with_server
from journeyman.core.ca_pin import pin_of
from journeyman.settings import Settings


@dataclass(frozen=True)
class Invitation:
    """A join token, and what a machine says to use it.

    Attributes:
        token: the secret.
        expires: RFC 3339.
        node: the only name that it admits; empty for any.
        server: URL of the plane.
        ca_hash: of the plane's CA; empty without TLS.
    """

    token: str
    expires: str
    node: str
    server: str
    ca_hash: str

    def command(self) -> str:
        """What to run on the machine that joins, with the token in `join.token`."""
        words = ["journeyman", "join", self.server, "--token-file", "join.token"]
        words += ["--ca-hash", self.ca_hash] if self.ca_hash else []
        words += ["--name", self.node] if self.node else []
        return shlex.join(words)


async def invite(settings: Settings, *, life_seconds: int, node: str) -> Invitation:
    """Mints a join token.

    Args:
        settings: name the plane, with the admin's token; or its state root.
        life_seconds: how long the token is good.
        node: the only name that it shall admit; empty for any.

    Raises:
        ControlPlaneError: the plane refuses, or does not answer.
    """
    named = with_server(settings)
    async with control_plane(named) as plane:
        minted = await plane.post("/join-tokens", {"ttlSeconds": life_seconds, "node": node})
    ca = "" if named.ca_file is None else pin_of(named.ca_file.read_text())
    return Invitation(minted["token"], minted["expires"], node, named.server or "", ca)


async def revoke(settings: Settings, node: str) -> None:
    """Ends the credential of a node: lost, stolen, or gone.  Raises NotFoundError where there is none."""
    async with control_plane(settings) as plane:
        await revoke_credential(plane, node)


async def revoke_credential(plane: HttpControlPlane, node: str) -> None:
    """The same, for whoever speaks with the plane already."""
    await plane.remove(f"/node-credentials/{node}")
