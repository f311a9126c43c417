"""Work that blocks does not hold up whoever stops."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from journeyman.errors import HostError
from journeyman.waiting import aside, happens_within
from tests.support.clock import FakeClock


class BrokenClock(FakeClock):
    """A clock that cannot be waited with."""

    async def sleep(self, seconds: float) -> None:
        raise HostError(f"no wait of {seconds:g} s")


def test_a_clock_that_fails_is_no_wait_that_is_over() -> None:
    """A loop that waits learns of it, rather than going round without a pause for ever."""
    with pytest.raises(HostError, match="no wait of 5 s"):
        asyncio.run(happens_within(asyncio.Event(), 5, BrokenClock()))


def test_what_is_done_aside_is_waited_for_and_its_error_raised() -> None:
    """It returns once the work is done, and raises what the work raised."""

    async def scenario() -> None:
        done = threading.Event()
        await aside(done.set)
        assert done.is_set()

        def fail() -> None:
            raise HostError("no room")

        with pytest.raises(HostError, match="no room"):
            await aside(fail)

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.slow
def test_a_program_ends_although_work_aside_goes_on() -> None:
    """A fetch of hours keeps no agent from stopping."""
    script = (
        "import asyncio, threading\n"
        "from journeyman.waiting import aside\n"
        "async def main():\n"
        "    working = asyncio.create_task(aside(threading.Event().wait))\n"
        "    await asyncio.sleep(0)\n"
        "    working.cancel()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
