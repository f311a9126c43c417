"""Which model answers where: the file that the agent writes and the proxy reads.

It is the only source of addresses, so no request can make the proxy speak to anybody else.  It outlives
either program: fields are only added.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self
from urllib.parse import urlsplit

FORMAT_VERSION = 1
ROUTES_FILE = "routes.json"
FIELD_TYPES: dict[str, type] = {"slots": int, "context_tokens": int, "asleep": bool, "services": list}


class RouteState(StrEnum):
    """What may be done with a request for a model."""

    READY = "ready"
    """It answers: pass the request on."""
    STARTING = "starting"
    """It will answer: hold the request."""
    FAILED = "failed"
    """It will not answer before somebody does something: refuse the request."""


@dataclass(frozen=True)
class Route:
    """One model.

    Attributes:
        model: the name by which clients ask for it.
        state: see `RouteState`.
        base_url: of its server's OpenAI-compatible API on this machine, with its `/v1`; empty if not READY.
        key_file: the file with that server's key; empty where it asks for none.
        upstream_model: the name that its server knows; empty if that is `model`.
        slots: how many requests it works on at a time; 0 is no limit.
        context_tokens: how much it can read and write in one request; 0 if nobody knows.
        reason: why it is not READY; one line.
        asleep: whether it is STARTING only once a request for it is held.  No state of its own, as a proxy of
            an earlier release would not read the file then.
        services: the InferenceServices for which clients on other machines may use it, `namespace/name`;
            without any it is this host's alone.
    """

    model: str
    state: RouteState
    base_url: str = ""
    key_file: str = ""
    upstream_model: str = ""
    slots: int = 0
    context_tokens: int = 0
    reason: str = ""
    asleep: bool = False
    services: tuple[str, ...] = ()

    @property
    def pinned_model(self) -> str:
        """What the `model` field of a request is set to, whatever alias a client used."""
        return self.upstream_model or self.model


@dataclass(frozen=True)
class Upstream:
    """Where a server listens, and the path below which its API lies."""

    host: str
    port: int
    prefix: str

    @classmethod
    def of(cls, base_url: str) -> Self:
        """Reads an `http://` URL of this machine.

        Raises:
            ValueError: it is none; the key of a server must not travel over a network in the clear.
        """
        parts = urlsplit(base_url)
        host = parts.hostname or ""
        if parts.scheme != "http" or parts.port is None or parts.username or parts.query or parts.fragment:
            raise ValueError(f"{base_url!r} is no URL like http://127.0.0.1:8080/v1")
        if host != "localhost" and not _is_loopback(host):
            raise ValueError(f"{base_url!r} is not on this machine")
        return cls(host, parts.port, parts.path.rstrip("/"))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def routes_to_json(routes: Iterable[Route]) -> bytes:
    """The file's content."""
    listed = [asdict(route) for route in routes]
    return json.dumps({"format": FORMAT_VERSION, "routes": listed}, sort_keys=True).encode()


def routes_from_json(data: bytes) -> dict[str, Route]:
    """Reads what `routes_to_json` wrote, by model; unknown fields of a newer writer are ignored.

    Raises:
        ValueError: it is no table of routes; the message says what is wrong with it.
    """
    value = json.loads(data)
    if not isinstance(value, dict) or value.get("format") != FORMAT_VERSION:
        raise ValueError(f"not in format {FORMAT_VERSION}")
    listed = value.get("routes")
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError("`routes` is no list of routes")
    routes = [_route(one) for one in listed]
    return {route.model: route for route in routes}


def _route(fields: dict[str, object]) -> Route:
    known = {name: value for name, value in fields.items() if name in Route.__dataclass_fields__}
    for name, value in known.items():
        # Not `isinstance`, to which True is a number.
        if type(value) is not FIELD_TYPES.get(name, str):
            raise ValueError(f"`{name}` of a route is {value!r}")
    if not known.get("model"):
        raise ValueError("a route without `model`")
    services = known.get("services", [])
    assert isinstance(services, list), "its type was checked"
    if not all(isinstance(service, str) for service in services):
        raise ValueError(f"`services` of a route is {services!r}")
    known["services"] = tuple(services)
    # The types were checked above, one by one, as the file may come from people.
    route = Route(**{**known, "state": RouteState(str(known.get("state", RouteState.READY)))})  # type: ignore[arg-type]
    if route.state is RouteState.READY:
        Upstream.of(route.base_url)
    return route
