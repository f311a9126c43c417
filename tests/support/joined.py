"""Nodes that have joined a plane, as whoever stole their credential sees it."""

from __future__ import annotations

import secrets
from typing import Any

import httpx

from tests.support.plane import PlaneProcess, RunningPlane, http_client


def join_token(plane: RunningPlane | PlaneProcess, **asked: Any) -> str:
    """A fresh join token."""
    with plane.client() as admin:
        reply = admin.post("/join-tokens", json=asked)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["token"])


def new_credential(name: str) -> str:
    """A credential for that node, as `journeyman join` makes one."""
    return f"node.{name}.{secrets.token_urlsafe(32)}"


def ask_to_join(
    plane: RunningPlane | PlaneProcess,
    token: str,
    name: str,
    *,
    credential: str = "",
    instance: str = "instance-1",
) -> httpx.Response:
    """The exchange, whatever comes of it."""
    body = {"name": name, "instance": instance, "credential": credential or new_credential(name)}
    with http_client(plane.url, token) as client:
        return client.post("/join", json=body)


def joined(plane: RunningPlane, name: str) -> httpx.Client:
    """A client with the credential of a node that has just joined; the caller closes it."""
    credential = new_credential(name)
    reply = ask_to_join(plane, join_token(plane), name, credential=credential)
    assert reply.status_code == 201, reply.text
    return http_client(plane.url, credential)
