"""The files in a worker's folder as their bytes: names, format, what each must hold.

workers/<id>/spec.json     what to run; written by the agent before the shim starts
workers/<id>/record.json   who runs it; written by the shim once the worker has been started
workers/<id>/exit.json     how it ended; written by the shim as its last act
workers/<id>/stdout.log    bounded; the older half is in stdout.log.1
workers/<id>/stderr.log    bounded; the older half is in stderr.log.1
workers/<id>/files/        whatever the worker itself reads and writes

`worker.py` has them as objects, for everybody but the shim: all that a shim loads is time that its worker
waits, so it works with these.
"""

from __future__ import annotations

import json

# A variable of this name is true to type checkers, and costs no import of typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT_VERSION = 1
SPEC, RECORD, EXIT = "spec.json", "record.json", "exit.json"
STDOUT, STDERR, FILES = "stdout.log", "stderr.log", "files"


def spec_from(data: bytes) -> dict[str, Any]:
    """The fields of a spec, as in `WorkerSpec`; unknown fields of a newer writer are ignored.

    Raises:
        ValueError: it is not a spec.
    """
    names = ("kind", "argv", "env", "cwd", "log_limit_bytes", "labels")
    return _fields(data, *names, copies=(), private=False, digest="")


def record_from(data: bytes) -> dict[str, Any]:
    """The fields of a record, as in `WorkerRecord`; raises ValueError for anything else."""
    names = ("worker_id", "nonce", "spec_digest", "shim", "worker", "started_at", "kind", "labels")
    return _fields(data, *names)


def exit_from(data: bytes) -> dict[str, Any]:
    """The fields of an exit report, as in `WorkerExit`; raises ValueError for anything else."""
    return _fields(data, "code", "signal", "elapsed_seconds", "nonce", "error", max_rss_bytes=None)


def to_bytes(fields: dict[str, Any]) -> bytes:
    """One of these files."""
    return canonical({"format": FORMAT_VERSION, **fields})


def canonical(value: dict[str, Any]) -> bytes:
    """JSON in the one form that is hashed, too."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _fields(data: bytes, *names: str, **newer: Any) -> dict[str, Any]:
    """The named fields; those that an older writer did not know have the values of `newer`."""
    value = json.loads(data)
    if not isinstance(value, dict) or value.get("format") != FORMAT_VERSION:
        raise ValueError(f"not in format {FORMAT_VERSION}")
    missing = [name for name in names if name not in value]
    if missing:
        raise ValueError(f"without {', '.join(missing)}")
    return {name: value[name] for name in names} | {name: value.get(name, newer[name]) for name in newer}
