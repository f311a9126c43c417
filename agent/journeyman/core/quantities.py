"""Amounts as people write them: lengths of time, and numbers of bytes as Kubernetes spells them."""

from __future__ import annotations

import re

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
BYTES = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4} | {
    f"{prefix}i": 1024**power for power, prefix in enumerate("KMGT", start=1)
}
_TIME = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGT]i?)?", re.ASCII)


def seconds_from(text: str) -> float:
    """`90s`, `30m`, `2h` or `1d` in seconds.  Raises ValueError for anything else, and for no time at all."""
    match = _TIME.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{text!r} is no length of time; write 90s, 30m, 2h or 1d")
    return float(match[1]) * SECONDS[match[2]]


def bytes_from(text: str) -> int:
    """`500M`, `2G` (powers of 1000) or `2Gi` (powers of 1024) in bytes.  Raises ValueError for others."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no amount of bytes; write 500M, 2G or 2Gi")
    return int(float(match[1]) * BYTES[match[2] or ""])


def bytes_text(amount: float) -> str:
    """A number of bytes for people, in powers of 1000."""
    for unit in ("T", "G", "M", "K"):
        if amount >= BYTES[unit]:
            return f"{amount / BYTES[unit]:.3g} {unit}B"
    return f"{amount:.0f} B"
