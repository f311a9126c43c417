"""What is said about being reachable from other machines, checked."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from journeyman.core.proxy.reach import checked_address, checked_sources
from journeyman.settings.kinds import Words


def _address(text: str, info: ValidationInfo) -> str:
    if not info.data.get("proxy", True):
        raise ValueError("it is the proxy that is reachable, and `proxy = false` does without one")
    if not info.data.get("fleet_services", True):
        raise ValueError("what is reachable is what the fleet has this host serve: set fleet_services = true")
    return checked_address(text)


def _sources(sources: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    # Where the address itself is wrong, that alone is complained about.
    if "proxy_reach_address" not in info.data:
        return sources
    address = info.data["proxy_reach_address"]
    if address is None:
        if sources:
            raise ValueError("nobody connects without proxy_reach_address")
        return sources
    if not sources:
        raise ValueError('proxy_reach_address needs the networks of its clients, such as ["10.0.0.0/8"]')
    return checked_sources(sources, address)


ReachAddress = Annotated[str, AfterValidator(_address)]
# Below the address, which decides whether there have to be any.
ReachSources = Annotated[Words, AfterValidator(_sources)]
