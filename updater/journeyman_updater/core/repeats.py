"""How often a release is tried that was undone by no fault of its own, while the request for it stands.

The host, or its service manager, failed then, and may fail again: each try costs a restart.  So there are
three, with growing pauses, and then none until the request is taken back or a person says so.  Pauses are
measured on the monotonic clock; in a new boot the time since the boot is all that counts.
"""

from __future__ import annotations

from journeyman_updater.errors import PostponedError, Reason, RequestError
from journeyman_updater.model.state import Undone

TIMES = 3
_GROWTH = 4.0


def is_over(undone: Undone) -> bool:
    """Whether it is tried no more; that the host itself went down in all of its starts is enough at once."""
    return undone.times >= TIMES or undone.reason == Reason.ATTEMPTS_EXHAUSTED


def seconds_left(undone: Undone, boot_id: str, mono_ns: int, *, pause_seconds: float) -> float:
    """How long until the next try; 0 if it is due.

    Args:
        undone: what was undone, and when.
        boot_id: of this boot.
        mono_ns: the monotonic clock of this boot.
        pause_seconds: after the first time; later pauses are four times as long as the one before.
    """
    began_ns = undone.mono_ns if undone.boot_id == boot_id else 0
    pause = pause_seconds * _GROWTH ** (undone.times - 1)
    return max(0.0, pause - (mono_ns - began_ns) / 1e9)


def check_over(undone: Undone) -> None:
    """Refuses what was tried often enough.

    Raises:
        RequestError: AttemptsExhausted.
    """
    if is_over(undone):
        raise RequestError(
            Reason.ATTEMPTS_EXHAUSTED,
            f"{undone.version} was undone here in each of {undone.times} tries ({undone.reason}), "
            "by no fault of its own",
            f"Mend the host, then run `journeyman update allow {undone.sha256}` or make the request anew.",
        )


def check_pause(undone: Undone, boot_id: str, mono_ns: int, *, pause_seconds: float) -> None:
    """Lets what was undone wait for its next try.

    Raises:
        PostponedError: with the reason for which it was undone.
    """
    if seconds_left(undone, boot_id, mono_ns, pause_seconds=pause_seconds):
        # Without the time that is left: the condition that is made of this must not change with each run.
        raise PostponedError(
            Reason(undone.reason),
            f"{undone.version} was undone by no fault of its own, and try {undone.times + 1} of {TIMES} "
            "comes after a pause",
            "`journeyman update status` says when.",
        )
