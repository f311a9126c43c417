"""What the loops that renew a credential share."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from journeyman.errors import HostError
from journeyman.renewing import RenewalLoop
from tests.support.clock import FakeClock


class Credential(RenewalLoop):
    """One whose renewals fail with the sentences of the test, and work where one is empty."""

    def __init__(self, clock: FakeClock, sentences: list[str]) -> None:
        super().__init__(clock, 60, "pass")
        self._sentences = sentences

    async def look(self) -> None:
        if sentence := self._sentences.pop(0):
            raise HostError(sentence)


def test_what_goes_wrong_is_logged_once_and_again_when_it_comes_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cause that lasts for days is one line of the log, and one that returns is news."""

    async def scenario() -> list[str]:
        clock, problems = FakeClock(), []
        loop = Credential(clock, ["full", "full", "locked", "", "locked"])
        running = asyncio.create_task(loop.run())
        await clock.settle()
        for _ in range(4):
            problems.append(loop.problem)
            await clock.run_for(60)
        problems.append(loop.problem)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return problems

    assert asyncio.run(scenario()) == ["full", "full", "locked", "", "locked"]
    assert capsys.readouterr().out.count("credential_renewal_failed") == 3
