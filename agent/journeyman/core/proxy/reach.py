"""Being reachable from other machines: where, for whom, and what they see there.

It is the one exception to having no ports, so each part of it has to be said: an address of this host, the
networks whose clients may connect, and the services that are shown to them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from journeyman.core.proxy.routes import Route

# Next to the proxy's 6481.
USUAL_REACH_PORT = 6482
# What a client from elsewhere may ask for; `/metrics` and the like are this host's own business.
GENERATING_PATHS = frozenset(
    f"/v1/{name}" for name in ("chat/completions", "completions", "embeddings", "rerank")
)


@dataclass(frozen=True)
class Reach:
    """Where and for whom the proxy listens besides loopback; fields are only added.

    Attributes:
        address: of this host, as a literal.
        port: there.
        sources: the networks whose clients may connect.
        has_key: whether they have to show a key.
        connections_per_source: how many connections one address may have at a time.
        connection_limit: how many they may have together; fewer than the proxy has, so that this host's own
            clients always find room.
        held_bytes: how much of their requests' bodies may lie in memory at a time.
        head_seconds: how long the head of a request may take once it has begun.
        body_seconds: how long all of its body may take.
    """

    address: str
    port: int
    sources: tuple[str, ...]
    has_key: bool = True
    connections_per_source: int = 64
    connection_limit: int = 512
    held_bytes: int = 256 * 1024 * 1024
    head_seconds: float = 10.0
    body_seconds: float = 75.0

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Reads what `asdict` and JSON have made of one."""
        return cls(**{**fields, "sources": tuple(fields["sources"])})

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    @cached_property
    def _networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        return [ipaddress.ip_network(source) for source in self.sources]

    def lets_in(self, client: str) -> bool:
        """Whether a client of that address may connect."""
        try:
            address = ipaddress.ip_address(client)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def checked_address(text: str) -> str:
    """An address at which others can reach this host.

    Raises:
        ValueError: it is none, or means every address of this host.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{text} is no IP address; name one of this host, such as 100.64.0.7") from None
    if address.is_unspecified:
        raise ValueError(f"{text} is every address of this host; name the one that clients shall use")
    if address.is_loopback or address.is_link_local or address.is_multicast:
        raise ValueError(f"no other machine reaches {text} through a Service; name another address")
    return str(address)


def checked_sources(sources: Sequence[str], address: str) -> tuple[str, ...]:
    """The networks whose clients may connect to that address.

    Raises:
        ValueError: one is no network, is of the other family, or is all of the internet.
    """
    family = ipaddress.ip_address(address).version
    for source in sources:
        try:
            network = ipaddress.ip_network(source)
        except ValueError as error:
            raise ValueError(f"{error}; write networks like 10.0.0.0/8") from None
        if network.version != family:
            raise ValueError(f"no client of {source} can connect to {address}")
        if network.prefixlen == 0:
            raise ValueError(f"{source} is everybody; name the networks of your clients")
    return tuple(sources)


@dataclass(frozen=True)
class Seen:
    """The routes that a request may know of.

    Attributes:
        routes: by the name under which it asks.
        only: the one to which any name leads, as the request was sent to that service's own name.
    """

    routes: Mapping[str, Route]
    only: Route | None = None

    @classmethod
    def from_elsewhere(cls, routes: Mapping[str, Route], host: str) -> Self:
        """What a client on another machine sees.

        A Service of the cluster is one model, whatever its clients call that; at an address they name it.

        Args:
            routes: all of this host.
            host: of the request's `Host`, such as `coder.default.svc.cluster.local:8080`.
        """
        # A reason may name files of this host.
        shown = {model: replace(route, reason="") for model, route in routes.items() if route.services}
        meant = [route for route in shown.values() if any(_is_of(host, each) for each in route.services)]
        if len(meant) != 1:
            return cls(shown)
        return cls({meant[0].model: meant[0]}, meant[0])

    def route(self, model: str) -> Route | None:
        """Where a request for that model goes, if anywhere."""
        return self.only or self.routes.get(model)


def service_name(inference_service: str) -> str:
    """The name of the Service through which an InferenceService is reached, as the operator makes it up."""
    return inference_service.replace(".", "-")


def _is_of(host: str, service: str) -> bool:
    """Whether a host is a name that a cluster gives to that service, `namespace/name`."""
    namespace, _, name = service.partition("/")
    labels = host.lower().rpartition(":")[0] or host.lower()
    whole = f"{service_name(name)}.{namespace}.svc."
    return f"{labels}.".startswith(whole) or whole.startswith(f"{labels}.")
