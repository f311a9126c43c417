"""What agent, updater, guard and shim agree on: names of files, process identity, exit codes.

This is the only part of the updater that the agent may import.  It uses the standard library alone, and
its file formats are frozen: release N-1 reads what release N writes.

Each name is loaded when it is first asked for: a shim starts with every worker, and waits for no more than
it needs.
"""

from __future__ import annotations

# A variable of this name is true to type checkers, and costs no import of typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from journeyman_updater.contract.control_socket import control_socket_of
    from journeyman_updater.contract.durable import temporary_name, write_durably
    from journeyman_updater.contract.exit_codes import ExitCode
    from journeyman_updater.contract.layout import StateRoot
    from journeyman_updater.contract.process import (
        ProcessIdentity,
        identity_of,
        kill_session,
        session_pids,
        signal_session,
    )
    from journeyman_updater.contract.process_table import boot_id, start_time
    from journeyman_updater.contract.trial import TrialReport
    from journeyman_updater.contract.wake_up import UPDATER_JOB
    from journeyman_updater.contract.worker import (
        WorkerExit,
        WorkerFolder,
        WorkerRecord,
        WorkerSpec,
    )

_HOMES = {
    "control_socket_of": "control_socket",
    "temporary_name": "durable",
    "write_durably": "durable",
    "ExitCode": "exit_codes",
    "StateRoot": "layout",
    "ProcessIdentity": "process",
    "boot_id": "process_table",
    "identity_of": "process",
    "kill_session": "process",
    "session_pids": "process",
    "signal_session": "process",
    "start_time": "process_table",
    "TrialReport": "trial",
    "UPDATER_JOB": "wake_up",
    "WorkerExit": "worker",
    "WorkerFolder": "worker",
    "WorkerRecord": "worker",
    "WorkerSpec": "worker",
}


def __getattr__(name: str) -> Any:
    """Loads the module that has the name (PEP 562)."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "UPDATER_JOB",
    "ExitCode",
    "ProcessIdentity",
    "StateRoot",
    "TrialReport",
    "WorkerExit",
    "WorkerFolder",
    "WorkerRecord",
    "WorkerSpec",
    "boot_id",
    "control_socket_of",
    "identity_of",
    "kill_session",
    "session_pids",
    "signal_session",
    "start_time",
    "temporary_name",
    "write_durably",
]
