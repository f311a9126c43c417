"""The host of a bug report: files below a folder, and programs that print what its programs printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from journeyman.adapters.sensors.access import HostFiles, Text
from journeyman.model.readings import Measurement, Quality


def host_files(root: Path, files: Mapping[str, str]) -> HostFiles:
    """Lays the files out and returns the host that has them."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return HostFiles(root)


class Programs:
    """Implements `Run`: prints by the first words of the command line; there is no other program.

    Args:
        printed: what each prints, or why it does not, by the beginning of its command line.
    """

    def __init__(self, printed: Mapping[str, str | Text]) -> None:
        self.printed = dict(printed)
        self.calls: list[str] = []

    def __call__(self, argv: Sequence[str], deadline_seconds: float) -> Text:
        line = " ".join(argv)
        self.calls.append(line)
        for beginning, text in self.printed.items():
            if line.startswith(beginning):
                return Text(text) if isinstance(text, str) else text
        return Text(None, Quality.UNSUPPORTED, f"no program {argv[0]}")


class Ticker:
    """A boot-time clock in the test's hand."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def value_of(measurements: Sequence[Measurement], name: str) -> float | None:
    """The value of the only measurement of that name."""
    (found,) = (one for one in measurements if one.name == name)
    return found.value


def quality_of(measurements: Sequence[Measurement], name: str) -> Quality:
    """The quality of the only measurement of that name."""
    (found,) = (one for one in measurements if one.name == name)
    return found.quality


def names_of(measurements: Sequence[Measurement]) -> set[str]:
    return {one.name for one in measurements}
