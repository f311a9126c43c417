"""Typed failures: the words of runtimes, as they were collected from the programs themselves."""

from __future__ import annotations

import pytest

from journeyman.core.server_failure import Failure, FailureKind, failure_in, failure_of, failure_of_exit
from journeyman_updater.contract import WorkerExit

E = "0.00.052.119 E"
SAID = [
    (
        f"{E} gguf_init_from_reader: failed to read magic\n{E} llama_model_load: error loading model: x\n",
        FailureKind.EMPTY,
        "failed to read magic",
    ),
    (
        "0.00.042.147 E gguf_init_from_reader: failed to read key-value pairs\n",
        FailureKind.HEADER_CUT,
        "failed to read key-value pairs",
    ),
    (
        f"{E} llama_model_load: error loading model: tensor 'q.weight' data is not within the file bounds\n",
        FailureKind.DATA_CUT,
        "tensor 'q.weight' data is not within the file bounds",
    ),
    (
        "0.0 E gguf_init_from_reader: invalid magic characters: 'GGML', expected 'GGUF'\n",
        FailureKind.OLD_FORMAT,
        "invalid magic characters: 'GGML', expected 'GGUF'",
    ),
    (
        "0.0 E gguf_init_from_reader: invalid magic characters: '<!DO', expected 'GGUF'\n",
        FailureKind.WEB_PAGE,
        "invalid magic characters: '<!DO', expected 'GGUF'",
    ),
    (
        f"{E} gguf_init_from_reader: this GGUF file is version 99 but\n{E} x: failed to read header\n",
        FailureKind.UNSUPPORTED_VERSION,
        "this GGUF file is version 99 but",
    ),
    (
        "0.0 E gguf_init_from_file: failed to open GGUF file 'x.gguf' (No such file or directory)\n",
        FailureKind.MISSING,
        "failed to open GGUF file 'x.gguf' (No such file or directory)",
    ),
    (
        "0.0 E llama_model_load: error loading model: unknown model architecture: 'lmaya'\n",
        FailureKind.UNKNOWN_ARCHITECTURE,
        "unknown model architecture: 'lmaya'",
    ),
    (
        "0.0 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 54733\n",
        FailureKind.PORT_HELD,
        "couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 54733",
    ),
    (
        "0.0 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 99\n",
        FailureKind.OUT_OF_MEMORY,
        "failed to allocate buffer of size 99",
    ),
    ("error: invalid argument: --nonsense\n", FailureKind.BAD_OPTION, "error: invalid argument: --nonsense"),
    (
        "0.0 E llama_init_from_model: quantized V cache requires flash_attn to be enabled\n",
        FailureKind.BAD_OPTION,
        "quantized V cache requires flash_attn to be enabled",
    ),
    (
        f"{E} llama_init_from_model: K cache type q8_0 with block size 32 does not divide n_embd_head_k=16\n",
        FailureKind.BAD_OPTION,
        "K cache type q8_0 with block size 32 does not divide n_embd_head_k=16",
    ),
    ("ValueError: Model type lmaya not supported.\n", FailureKind.UNKNOWN_ARCHITECTURE, "ValueError: "),
]


@pytest.mark.parametrize(("log", "kind", "message"), SAID, ids=[f"{kind}" for _, kind, _ in SAID])
def test_the_first_cause_of_a_log_is_its_failure(log: str, kind: FailureKind, message: str) -> None:
    """The kind is for programs, the runtime's own words without time and level are for people."""
    failure = failure_in("0.0 I srv llama_server: initializing\n" + log)
    assert failure is not None
    assert failure.kind is kind
    assert failure.message.startswith(message)


def test_a_log_without_a_cause_has_none() -> None:
    """A server that says nothing about a failure is not given one."""
    assert failure_in("0.00.653.123 I srv llama_server: listening on http://127.0.0.1:36451\n") is None


@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        (WorkerExit(None, 4, 1.0, "n"), FailureKind.UNSUPPORTED_PROCESSOR),
        (WorkerExit(132, None, 1.0, "n"), FailureKind.UNSUPPORTED_PROCESSOR),
        (WorkerExit(None, 9, 1.0, "n"), FailureKind.KILLED),
        (WorkerExit(None, 11, 1.0, "n"), FailureKind.CRASHED),
        (WorkerExit(1, None, 1.0, "n"), FailureKind.CRASHED),
        (None, FailureKind.LOST),
    ],
)
def test_an_exit_alone_says_something(ended: WorkerExit | None, kind: FailureKind) -> None:
    """A signal names itself; a program built for another processor is no crash to try again."""
    assert failure_of_exit(ended).kind is kind
    assert failure_of_exit(ended).is_final is (kind is FailureKind.UNSUPPORTED_PROCESSOR)


def test_a_worker_of_an_earlier_release_is_understood() -> None:
    """Its exit code and its line are all that it leaves, and what is hopeless stays so."""
    failure = failure_of(WorkerExit(74, None, 1.0, "n"), "model x does not load: it is cut off")
    assert failure == Failure(FailureKind.DOES_NOT_LOAD, "model x does not load: it is cut off")
    assert failure.is_final


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"kind": "of tomorrow", "message": ""}'])
def test_what_is_no_failure_is_none(data: bytes) -> None:
    """A file that is cut off, or of a newer release, is read by its exit instead."""
    assert Failure.from_json(data) is None


def test_every_kind_survives_the_disk() -> None:
    """What a worker writes is what the agent reads."""
    for kind in FailureKind:
        failure = Failure(kind, "why")
        assert Failure.from_json(failure.to_json()) == failure
        assert failure.is_final is (failure.exit_code != 70)
