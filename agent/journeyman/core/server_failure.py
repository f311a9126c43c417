"""Why a model server does not serve, as one word for programs and one line for people.

The words that runtimes end with were collected from the programs themselves (llama.cpp of 2026-08 to
2026-10, mlx_lm 0.32); what none of them says is a crash.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from journeyman.errors import ModelError
from journeyman_updater.contract import WorkerExit

ILLEGAL_INSTRUCTION, KILL = 4, 9
MODEL_CODE, HOST_CODE, WORKER_CODE, CONFIG_CODE = 74, 71, 70, 78
LONGEST_MESSAGE = 300


class FailureKind(StrEnum):
    """What is wrong; of a model's file in the words of `ModelFault`."""

    MISSING = "Missing"
    EMPTY = "Empty"
    HEADER_CUT = "HeaderCut"
    DATA_CUT = "DataCut"
    OLD_FORMAT = "OldFormat"
    UNSUPPORTED_VERSION = "UnsupportedVersion"
    NOT_GGUF = "NotGguf"
    NOT_SAFETENSORS = "NotSafetensors"
    OFFSETS_WRONG = "OffsetsWrong"
    CONFIG_MISSING = "ConfigMissing"
    WRONG_RUNTIME = "WrongRuntime"
    WEB_PAGE = "WebPage"
    PART_MISSING = "PartMissing"
    HASH_MISMATCH = "HashMismatch"
    UNKNOWN_ARCHITECTURE = "UnknownArchitecture"
    DOES_NOT_LOAD = "DoesNotLoad"
    RUNTIME_MISSING = "RuntimeMissing"
    UNSUPPORTED_PROCESSOR = "UnsupportedProcessor"
    BAD_OPTION = "OptionRefused"
    OUT_OF_MEMORY = "OutOfMemory"
    NO_MEMORY = "InsufficientMemory"
    TOO_LARGE = "ModelTooLarge"
    PORT_HELD = "PortHeld"
    KILLED = "Killed"
    CRASHED = "Crashed"
    LOST = "Lost"
    HUNG = "Hung"
    SLOW = "NoTokenInTime"
    NOT_FETCHED = "NotFetched"
    NOT_REACHED = "NotReached"


# What exit codes mean of a worker that says no more: nothing but another configuration would help.
FATAL_CODES = {
    MODEL_CODE: FailureKind.DOES_NOT_LOAD,
    HOST_CODE: FailureKind.RUNTIME_MISSING,
    CONFIG_CODE: FailureKind.BAD_OPTION,
}
# Another try would end in the same way.
EXIT_CODES = {
    **dict.fromkeys(
        (
            FailureKind.MISSING,
            FailureKind.EMPTY,
            FailureKind.HEADER_CUT,
            FailureKind.DATA_CUT,
            FailureKind.OLD_FORMAT,
            FailureKind.UNSUPPORTED_VERSION,
            FailureKind.NOT_GGUF,
            FailureKind.NOT_SAFETENSORS,
            FailureKind.OFFSETS_WRONG,
            FailureKind.CONFIG_MISSING,
            FailureKind.WRONG_RUNTIME,
            FailureKind.WEB_PAGE,
            FailureKind.PART_MISSING,
            FailureKind.HASH_MISMATCH,
            FailureKind.UNKNOWN_ARCHITECTURE,
            FailureKind.DOES_NOT_LOAD,
        ),
        MODEL_CODE,
    ),
    FailureKind.RUNTIME_MISSING: HOST_CODE,
    FailureKind.TOO_LARGE: HOST_CODE,
    FailureKind.UNSUPPORTED_PROCESSOR: HOST_CODE,
    FailureKind.BAD_OPTION: CONFIG_CODE,
}

# The first that is found is the cause: what runtimes say later is that everything above failed as well.
WORDS: tuple[tuple[FailureKind, tuple[str, ...]], ...] = (
    (FailureKind.MISSING, (r"failed to open GGUF file .*No such file",)),
    (FailureKind.EMPTY, (r"failed to read magic",)),
    (FailureKind.OLD_FORMAT, (r"invalid magic characters: '(?:gg|GG)\w\w'",)),
    (FailureKind.WEB_PAGE, (r"invalid magic characters: '<",)),
    (FailureKind.NOT_GGUF, (r"invalid magic characters", r"config\.json'?$")),
    (FailureKind.UNSUPPORTED_VERSION, (r"this GGUF file is version", r"bad GGUF version")),
    (FailureKind.HEADER_CUT, (r"failed to read (?:header|key-value pairs|tensor info)",)),
    (FailureKind.DATA_CUT, (r"not within the file bounds",)),
    (FailureKind.UNKNOWN_ARCHITECTURE, (r"unknown model architecture", r"Model type .* not supported")),
    (FailureKind.PORT_HELD, (r"couldn't bind", r"address already in use", r"failed to bind")),
    (
        FailureKind.OUT_OF_MEMORY,
        (
            r"(?:failed|unable) to allocate",
            r"insufficient memory",
            r"out of memory",
            r"bad_alloc",
            r"cudaMalloc failed",
            r"MemoryError",
            r"Cannot allocate memory",
        ),
    ),
    (
        FailureKind.BAD_OPTION,
        (
            r"error: invalid (?:argument|value)",
            r"error while handling argument",
            r"unrecognized arguments",
            r"requires flash_attn",
            r"cache type \S+ with block size \d+ does not divide",
            r"the argument has been removed",
        ),
    ),
    (
        FailureKind.DOES_NOT_LOAD,
        (r"error loading model", r"failed to create.context", r"Failed to load model"),
    ),
)
# What stands before a message: time, level, and who says it.
PREAMBLE = re.compile(r"^[\d.: -]*\s*[EWI] +(?:\S+ +)?\S+: ")


@dataclass(frozen=True)
class Failure:
    """One failure.

    Attributes:
        kind: for programs.
        message: one line for people.
    """

    kind: FailureKind
    message: str

    @property
    def exit_code(self) -> int:
        """How a worker ends because of it; see docs/exit-codes.md."""
        return EXIT_CODES.get(self.kind, WORKER_CODE)

    @property
    def is_final(self) -> bool:
        """Whether another try would end in the same way."""
        return self.kind in EXIT_CODES

    def to_json(self) -> bytes:
        return json.dumps({"kind": self.kind.value, "message": self.message}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self | None:
        """Reads what `to_json` wrote; None for anything else, such as a kind of a newer release."""
        try:
            told = json.loads(data)
            return cls(FailureKind(told["kind"]), str(told["message"]))
        except (ValueError, KeyError, TypeError):
            return None


def failure_in(log: str) -> Failure | None:
    """The cause of a failure in the last words of a runtime; None where it is not among them.

    Args:
        log: its output, as far as it is there.
    """
    for line in log.splitlines():
        for pattern, kind in _patterns():
            if pattern.search(line):
                words = PREAMBLE.sub("", line).removeprefix("error loading model: ").strip()
                return Failure(kind, words[:LONGEST_MESSAGE])
    return None


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str], FailureKind], ...]:
    """Made when something has failed, as every start of a server would wait for it."""
    return tuple((re.compile("|".join(words), re.IGNORECASE), kind) for kind, words in WORDS)


def failure_of(ended: WorkerExit | None, reason: str) -> Failure:
    """The failure of a worker of ours that left no more than a line.

    Args:
        ended: how it ended; None where nobody knows.
        reason: what it said; empty if it said nothing.
    """
    by_exit = failure_of_exit(ended)
    kind = by_exit.kind if ended is None or ended.code is None else FATAL_CODES.get(ended.code, by_exit.kind)
    return Failure(kind, reason or by_exit.message)


def failure_of_model(error: ModelError) -> Failure:
    """The failure of a server whose model the store does not give."""
    by_word = {kind.value: kind for kind in FailureKind}
    return Failure(by_word.get(error.fault.value, FailureKind.DOES_NOT_LOAD), error.message)


def failure_of_exit(ended: WorkerExit | None, who: str = "the server") -> Failure:
    """What an exit alone says, of whatever program.

    Args:
        ended: how; None where nobody knows.
        who: has ended.
    """
    if ended is None:
        return Failure(FailureKind.LOST, f"{who} was lost together with its shim")
    if ended.signal == ILLEGAL_INSTRUCTION or ended.code == 128 + ILLEGAL_INSTRUCTION:
        message = "the runtime needs instructions that this processor does not have"
        return Failure(FailureKind.UNSUPPORTED_PROCESSOR, message)
    if ended.signal is not None:
        kind = FailureKind.KILLED if ended.signal == KILL else FailureKind.CRASHED
        return Failure(kind, f"{who} was ended by signal {ended.signal}")
    return Failure(FailureKind.CRASHED, f"{who} ended with code {ended.code}")
