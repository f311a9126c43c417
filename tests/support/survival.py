"""What an installed agent's restarts, an update and a rollback cost those who use its model server.

The same for each service manager.  `python -m tests.support.survival SERVICE FOLDER` does it inside of a
container, and prints the outcome as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from journeyman.control import call
from journeyman.errors import JourneymanError
from journeyman.installation import install
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.adapters.service.choice import service_manager
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot, WorkerRecord
from journeyman_updater.ports import ServiceManager
from journeyman_updater.run import Ending, open_updater
from journeyman_updater.settings import Settings
from tests.support.installable_agent import installable_agent
from tests.support.places import place_of
from tests.support.plane import running_plane
from tests.support.streaming import LongStream, ModelAddress, ShortAnswers, socket_bytes
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.waiting import eventually

TOKENS = 2000
RESTARTS = 5
# What is read before each of them; the rest has to be with the server until all are over.
SHARE = 60
NEXT_VERSION = "99.0.0"
PATIENCE_SECONDS = 60.0


@dataclass
class Survived:
    """What was seen.

    Attributes:
        tokens: that the client of the long stream got, by its own count.
        promised: that the server says it has sent.
        reason: why the stream ended.
        is_whole: whether the server has said that this was all, and nothing broke it.
        rest_bytes: of the stream that were read after everything else was over.
        answers: short ones that were given meanwhile.
        is_same_server: whether it is the same process, and the only one, at the end.
        agents: how many agents there were.
        restarts: downtime of the agent in each restart, in seconds.
        update: the same in the update.
        rollback: the same in the way back.
        endings: of the update and of the way back.
    """

    tokens: int = 0
    promised: int = 0
    reason: str = ""
    is_whole: bool = False
    rest_bytes: int = 0
    answers: int = 0
    is_same_server: bool = False
    agents: int = 1
    restarts: list[float] = field(default_factory=list)
    update: float = 0.0
    rollback: float = 0.0
    endings: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raises AssertionError: something was lost, or it was no test at all."""
        assert (self.tokens, self.promised, self.reason) == (TOKENS, TOKENS, "length"), self
        assert self.is_whole, self
        # What the client read last cannot have been in a socket: the server must have lived for it.
        assert self.rest_bytes > socket_bytes(), self
        assert self.answers > RESTARTS, self
        assert self.is_same_server, self
        assert self.endings == [Ending.COMMITTED, Ending.COMMITTED], self
        # A manager may start an agent once more than it was asked to.
        assert self.agents >= 1 + RESTARTS + 2, self


class AgentWatch(threading.Thread):
    """Asks the agent who it is, all the time, and notes how long nobody answered between two of them."""

    EVERY_SECONDS = 0.02

    def __init__(self, root: StateRoot) -> None:
        super().__init__(name="agent watch", daemon=True)
        self._root = root
        self._stopping = threading.Event()
        self.gaps: list[float] = []
        self.pid = 0

    def __enter__(self) -> Self:
        self.start()
        eventually(lambda: self.pid, within_seconds=PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(PATIENCE_SECONDS)

    def run(self) -> None:
        last = 0.0
        while not self._stopping.wait(self.EVERY_SECONDS):
            try:
                pid = call(self._root, "status")["pid"]
            except JourneymanError:
                continue
            now = time.monotonic()
            if self.pid not in {0, pid}:
                self.gaps.append(now - last)
            self.pid, last = pid, now

    def next_gap(self, number: int) -> float:
        """The downtime before the agent with that number, once it has answered."""
        eventually(lambda: len(self.gaps) >= number, within_seconds=PATIENCE_SECONDS)
        return round(self.gaps[number - 1], 3)


def survive(service: str, folder: Path) -> Survived:
    """Installs an agent with a model server, and does all that to it while a client streams."""
    folder.mkdir(parents=True, exist_ok=True)
    key, model = SecretKey.generate(), folder / "tiny.gguf"
    write_tiny_gguf(model)
    first = installable_agent(folder / "first", key)
    other = installable_agent(folder / "next", key, version=NEXT_VERSION, sequence=2)
    with running_plane(folder) as plane, place_of(service, folder, key) as place:
        place.prepare(plane, model)
        install(place.request(plane, first), place.said.append)
        return _survive(place.target.root, other)


def _survive(root: StateRoot, other: Path) -> Survived:
    eventually(lambda: _serves(root), within_seconds=PATIENCE_SECONDS)
    before, seen = _servers(root), Survived()
    address = ModelAddress.of(root, before[0])
    stream, answers = LongStream(address, TOKENS), ShortAnswers(address)
    stream.start()
    answers.start()
    with AgentWatch(root) as watch:
        stream.allow(SHARE)
        for number in range(1, RESTARTS + 1):
            _restart(_manager(root))
            seen.restarts.append(watch.next_gap(number))
            stream.allow(SHARE)
        seen.endings.append(open_updater(root).apply_file(other).ending)
        seen.update = watch.next_gap(RESTARTS + 1)
        stream.allow(SHARE)
        seen.endings.append(open_updater(root).rollback().ending)
        seen.rollback = watch.next_gap(RESTARTS + 2)
        stream.allow(SHARE)
    seen.agents += len(watch.gaps)
    answers.stop()
    read = stream.read_bytes
    stream.finish()
    seen.tokens, seen.promised, seen.reason = stream.read, stream.promised, stream.reason
    seen.is_whole = stream.ended and not stream.failure and not answers.failure
    seen.rest_bytes, seen.answers = stream.read_bytes - read, answers.answered
    seen.is_same_server = _servers(root) == before and before[0].worker.is_running()
    return seen


def _manager(root: StateRoot) -> ServiceManager:
    """As the updater has it, which remembers nothing of the time before."""
    settings = Settings.load(root.updater_settings)
    return service_manager(
        settings.service,
        root,
        SystemClock(),
        stop_seconds=settings.stop_seconds,
        service_folder=settings.service_folder,
        launchctl=settings.launchctl,
    )


def _restart(manager: ServiceManager) -> None:
    token = manager.token()
    manager.restart()
    eventually(lambda: manager.started_since(token), within_seconds=PATIENCE_SECONDS, every_seconds=0.1)


def _serves(root: StateRoot) -> bool:
    try:
        return [model["phase"] for model in call(root, "status")["models"]] == ["ready"]
    except JourneymanError:
        return False


def _servers(root: StateRoot) -> list[WorkerRecord]:
    records = [WorkerRecord.from_json(path.read_bytes()) for path in root.workers.glob("*/record.json")]
    return [record for record in records if record.kind == "model-server"]


def main(service: str, folder: str) -> None:
    """Prints what was seen."""
    sys.stdout.write(json.dumps(asdict(survive(service, Path(folder)))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
