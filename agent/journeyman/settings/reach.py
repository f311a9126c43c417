"""What is said about being reachable from other machines, checked."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from journeyman.core.proxy.reach import checked_address, checked_sources


def _address(text: str, info: ValidationInfo) -> str:
    if not info.data.get("proxy", True):
        raise ValueError("it is the proxy that is reachable, and `proxy = false` does without one")
    return checked_address(text)


def _split(value: object) -> object:
    """Environment variables spell a list `a,b`."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


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
ReachSources = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_sources)]
