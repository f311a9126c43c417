"""What kind of host this is, from facts that the sensors found; a person may overrule it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from journeyman.errors import ConfigError


class HostClass(StrEnum):
    """Kinds of hosts that are gated differently."""

    MAC_LAPTOP = "mac-laptop"
    MAC_DESKTOP = "mac-desktop"
    LINUX_LAPTOP = "linux-laptop"
    LINUX_SERVER = "linux-server"
    PI = "pi"
    PHONE_TERMUX = "phone-termux"
    PHONE_PROOT = "phone-proot"
    CONTAINER = "container"

    @property
    def is_phone(self) -> bool:
        return self in {HostClass.PHONE_TERMUX, HostClass.PHONE_PROOT}

    @property
    def is_mac(self) -> bool:
        return self in {HostClass.MAC_LAPTOP, HostClass.MAC_DESKTOP}


@dataclass(frozen=True)
class HostFacts:
    """What detection goes by.

    Attributes:
        darwin: whether the kernel is macOS.
        battery: whether there is a battery of the system itself (no mouse's).
        termux: whether `$PREFIX` is Termux's.
        proot: whether we run under PRoot.
        pi: whether the firmware is a Raspberry Pi's.
        virtual: whether this is a container or a virtual machine.
    """

    darwin: bool = False
    battery: bool = False
    termux: bool = False
    proot: bool = False
    pi: bool = False
    virtual: bool = False


def host_class(facts: HostFacts, wanted: str = "auto") -> HostClass:
    """The class of the host.

    Raises:
        ConfigError: `wanted` is neither `auto` nor a class.
    """
    if wanted != "auto":
        try:
            return HostClass(wanted)
        except ValueError as error:
            classes = ", ".join(HostClass)
            raise ConfigError(
                f"gates.host_class is {wanted!r}", f"It is auto, or one of {classes}."
            ) from error
    if facts.darwin:
        return HostClass.MAC_LAPTOP if facts.battery else HostClass.MAC_DESKTOP
    order = (
        (facts.proot, HostClass.PHONE_PROOT),
        (facts.termux, HostClass.PHONE_TERMUX),
        (facts.pi, HostClass.PI),
        (facts.battery, HostClass.LINUX_LAPTOP),
        (facts.virtual, HostClass.CONTAINER),
    )
    return next((found for is_so, found in order if is_so), HostClass.LINUX_SERVER)
