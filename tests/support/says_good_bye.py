"""Inside of a container: listens to logind, and notes what the kernel was told by the time of each word.

`python -m tests.support.says_good_bye FILE POWER_STATE`; FILE gets a line a word, `ready` first.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from journeyman.adapters.logind import LogindPower
from journeyman.model.power import Going


async def main(notes: Path, power_state: Path) -> None:
    def note(word: str) -> None:
        with notes.open("a") as file:
            file.write(f"{word} {power_state.read_text().split()[-1]}\n")

    async def going(why: Going) -> None:
        # Long enough for a host that does not wait to be gone.
        await asyncio.sleep(1)
        note(why.value)

    listener = asyncio.create_task(LogindPower(timeout_seconds=10).listen(going, lambda: note("back")))
    note("begins")
    await listener


if __name__ == "__main__":
    asyncio.run(main(*map(Path, sys.argv[1:])))
