"""Sleep of a Mac, over the C interface of IOKit as a library of our own has it."""

from __future__ import annotations

import asyncio
import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from journeyman.adapters.mac_power import (
    CAN_SLEEP,
    HAS_POWERED_ON,
    WILL_NOT_SLEEP,
    WILL_SLEEP,
    IoKit,
    MacPower,
    PowerLibrary,
)
from journeyman.errors import HostError
from journeyman.model.power import Going
from tests.support.waiting import eventually

SOURCE = Path(__file__).resolve().parents[2] / "support" / "fake_iokit.c"


@pytest.fixture
def library(tmp_path: Path) -> ctypes.CDLL:
    """A fresh one, as the registration is a variable of it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("cannot run here: there is no C compiler")
    path = tmp_path / "fake_iokit.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    found = ctypes.CDLL(str(path))
    found.fake_answer.restype = ctypes.c_long
    found.fake_say.argtypes = [ctypes.c_uint32, ctypes.c_ssize_t]
    return found


@pytest.mark.slow
def test_a_mac_waits_for_our_good_bye(library: ctypes.CDLL) -> None:
    """Each question is answered once, a sleep after the good-bye; at the end nothing is registered."""
    heard: list[str] = []

    async def test() -> None:
        news, may_answer = asyncio.Event(), asyncio.Event()

        def note(word: str) -> None:
            heard.append(word)
            news.set()

        async def going(why: Going) -> None:
            note(why.value)
            await may_answer.wait()
            heard.append("said")

        async def until_heard() -> None:
            async with asyncio.timeout(30):
                await news.wait()
            news.clear()

        power = MacPower(lambda: IoKit(library, library))
        listener = asyncio.create_task(power.listen(going, lambda: note("back")))
        await asyncio.to_thread(eventually, lambda: bool(library.fake_is_registered()))
        assert library.fake_say(CAN_SLEEP, 7)
        assert await asyncio.to_thread(library.fake_answer) == 7
        assert heard == []

        # The argument is a pointer's size, and may look negative.
        assert library.fake_say(WILL_SLEEP, 1 << 40)
        await until_heard()
        assert heard == ["sleep"]
        may_answer.set()
        assert await asyncio.to_thread(library.fake_answer) == 1 << 40
        assert heard == ["sleep", "said"]
        for word in (HAS_POWERED_ON, WILL_NOT_SLEEP):
            assert library.fake_say(word, 0)
            await until_heard()
        assert heard == ["sleep", "said", "back", "back"]
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)
        assert (library.fake_is_registered(), library.fake_is_destroyed()) == (0, 1)

    asyncio.run(test())


class Deaf:
    """Implements PowerLibrary, and takes no registration."""

    def register(self, heard: object) -> int:
        return 0

    def run(self) -> None:
        raise AssertionError("there is nothing to deliver")

    def allow(self, port: int, argument: int) -> None:
        raise AssertionError("there is nothing to allow")

    def stop(self) -> None:
        raise AssertionError("there is nothing to take back")


async def _ignore(_: Going) -> None:
    return


def _missing() -> PowerLibrary:
    raise OSError("no such library")


def test_a_mac_that_does_not_tell_is_an_error_of_ours() -> None:
    """No library and no registration are said as such."""
    with pytest.raises(HostError, match="no such library"):
        asyncio.run(MacPower(_missing).listen(_ignore, lambda: None))
    with pytest.raises(HostError, match="no registration"):
        asyncio.run(MacPower(Deaf).listen(_ignore, lambda: None))
