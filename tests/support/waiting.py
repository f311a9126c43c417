"""The one bounded poll of the tests, for facts that nothing announces."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def eventually(
    condition: Callable[[], object], *, within_seconds: float = 10.0, every_seconds: float = 0.01
) -> None:
    """Returns as soon as `condition()` is true.

    Args:
        condition: cheap, and free of effects.
        within_seconds: how long it may take at most.
        every_seconds: between two looks; more where a look costs something.

    Raises:
        AssertionError: it did not become true in time.
    """
    never = threading.Event()
    deadline = time.monotonic() + within_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_seconds} s")
        never.wait(every_seconds)
