"""Who gets in."""

from __future__ import annotations

import base64

import httpx
import pytest

from tests.support.plane import FOREMAN, RunningPlane


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    "path", [f"{FOREMAN}/fleetnodes", "/api", "/version", "/metrics", "/openapi/v3", "/nowhere"]
)
def test_without_the_token_everything_is_401(plane: RunningPlane, path: str) -> None:
    """Every path but those of the health answers 401 with a Status, also to a wrong token."""
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": basic("admin", "wrong")}):
        reply = httpx.get(plane.url + path, headers=headers)
        assert reply.status_code == 401
        assert (reply.json()["kind"], reply.json()["reason"]) == ("Status", "Unauthorized")
        assert reply.headers["www-authenticate"] == "Bearer"


def test_health_is_open(plane: RunningPlane) -> None:
    """The health paths need no token."""
    assert [httpx.get(plane.url + path).text for path in ("/healthz", "/livez", "/readyz")] == ["ok"] * 3


def test_the_token_is_also_a_password(plane: RunningPlane) -> None:
    """The token gets in as Basic authentication, which kubectl sends over plain http."""
    reply = httpx.get(f"{plane.url}/version", headers={"Authorization": basic("admin", plane.token)})
    assert reply.status_code == 200
