"""Whether the host has memory for one more model server: the budget minus what runs and what is reserved.

Two questions, and both must be answered with yes.  Would all servers together stay within the share of the
memory that models may have?  That guards machines whose weights cannot be swapped, and counts mapped weights,
which the host reports as available although their server needs them.  And is there as much free now, after
what those that are just loading will still take?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from journeyman.core.model_allocation import Need
from journeyman.core.quantities import bytes_text

# As metal-agent: small machines keep a larger share for themselves.
SMALL_HOST_BYTES = 36 * 1024**3
SMALL_HOST_FRACTION, LARGE_HOST_FRACTION = 0.67, 0.75


@dataclass(frozen=True)
class HostRoom:
    """What the host has.

    Attributes:
        total_bytes: all its memory.
        available_bytes: what it says could be had now.
        kept_bytes: of that, what admission leaves to the host.
        reserved_bytes: what was granted to other work and is not in use yet.
    """

    total_bytes: int
    available_bytes: int
    kept_bytes: int = 0
    reserved_bytes: int = 0


@dataclass(frozen=True)
class RunningServer:
    """A server that runs or is being loaded.

    Attributes:
        expected_bytes: what it will take.
        used_bytes: what it takes now.
    """

    expected_bytes: int
    used_bytes: int


@dataclass(frozen=True)
class Refusal:
    """Why a server is not started.

    Attributes:
        message: one line with the numbers.
        is_final: whether it would not fit if nothing else ran.
    """

    message: str
    is_final: bool


def default_fraction(total_bytes: int) -> float:
    """The share of the memory that models may have where nobody has said it."""
    return SMALL_HOST_FRACTION if total_bytes <= SMALL_HOST_BYTES else LARGE_HOST_FRACTION


def refusal(need: Need, host: HostRoom, running: Sequence[RunningServer], fraction: float) -> Refusal | None:
    """Judges a server before it is started; None if it fits.

    Args:
        need: what it will take.
        host: what there is.
        running: all other servers of this host.
        fraction: of the memory that all servers together may have.
    """
    wanted = f"needs {need.explanation}"
    budget = int(host.total_bytes * fraction)
    if need.total_bytes > budget:
        message = f"{wanted}, and all models together may have {bytes_text(budget)} here"
        return Refusal(message, is_final=True)
    in_use = sum(max(one.expected_bytes, one.used_bytes) for one in running)
    if in_use + need.total_bytes > budget:
        message = f"{wanted}; of the {bytes_text(budget)} for models {bytes_text(in_use)} are in use"
        return Refusal(message, is_final=False)
    coming = sum(max(0, one.expected_bytes - one.used_bytes) for one in running) + host.reserved_bytes
    free = max(0, host.available_bytes - host.kept_bytes - coming)
    if need.total_bytes > free:
        message = f"{wanted}; {bytes_text(free)} are free, with {bytes_text(coming)} promised to others"
        return Refusal(message, is_final=False)
    return None
