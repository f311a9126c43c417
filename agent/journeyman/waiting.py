"""How loops wait: until something happens, or until the time is over."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from journeyman.ports import Clock


async def happens_within(event: asyncio.Event, seconds: float, clock: Clock) -> bool:
    """Whether the event was set before `seconds` had passed on that clock."""
    if event.is_set():
        return True
    happened = asyncio.ensure_future(event.wait())
    elapsed = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({happened, elapsed}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in (happened, elapsed):
            waiting.cancel()
        await asyncio.gather(happened, elapsed, return_exceptions=True)
    if not elapsed.cancelled():
        # A clock that fails would otherwise be asked again at once, for ever.
        elapsed.result()
    return event.is_set()


async def aside(work: Callable[[], object]) -> None:
    """Runs what blocks, for hours if need be, in a thread of its own.

    Whoever is cancelled, or stops the whole program, does not wait for it: it has to bear being cut off.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as caught:  # noqa: BLE001  # It is raised again where it is waited for.
            error = caught
        # A loop that is closed has nobody who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, error)

    threading.Thread(target=run, daemon=True, name="aside").start()
    await done


async def first_of(*work: Coroutine[Any, Any, Any]) -> list[asyncio.Future[Any]]:
    """Runs all until the first is done, and cancels the rest: what was not done in time is `cancelled()`."""
    running: list[asyncio.Future[Any]] = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return running
