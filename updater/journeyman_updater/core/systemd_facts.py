"""What `systemctl show` says of a unit, and which refusal it amounts to."""

from __future__ import annotations

from dataclasses import dataclass

from journeyman_updater.errors import Reason, RestartError

PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "UnitFileState",
    "NeedDaemonReload",
    "InvocationID",
    "MainPID",
    "ExecMainStatus",
)


@dataclass(frozen=True)
class UnitFacts:
    """One look at a unit.  Absent properties are empty or zero.

    Attributes:
        load_state: `loaded`, `not-found`, `masked`, `bad-setting`, `error`.
        active_state: `active`, `activating`, `inactive`, `failed` and others.
        sub_state: finer, as `running`, `auto-restart`.
        result: why it ended, as `success`, `exit-code`, `watchdog`, `start-limit-hit`.
        unit_file_state: `enabled`, `disabled`, `masked`, or empty.
        needs_reload: the file has changed since the manager read it.
        invocation_id: new at each start; empty before the first.
        main_pid: of the agent, 0 for none.
        exit_status: of its last end.
    """

    load_state: str
    active_state: str
    sub_state: str
    result: str
    unit_file_state: str
    needs_reload: bool
    invocation_id: str
    main_pid: int
    exit_status: int


def parse_show(text: str) -> UnitFacts:
    """Reads `KEY=value` lines; unknown ones are ignored."""
    found = dict(line.partition("=")[::2] for line in text.splitlines())
    return UnitFacts(
        load_state=found.get("LoadState", ""),
        active_state=found.get("ActiveState", ""),
        sub_state=found.get("SubState", ""),
        result=found.get("Result", ""),
        unit_file_state=found.get("UnitFileState", ""),
        needs_reload=found.get("NeedDaemonReload") == "yes",
        invocation_id=found.get("InvocationID", ""),
        main_pid=_number(found.get("MainPID")),
        exit_status=_number(found.get("ExecMainStatus")),
    )


def check_startable(unit: str, facts: UnitFacts, systemctl: str) -> None:
    """Raises RestartError if the manager would never start the unit.

    Args:
        unit: its name.
        facts: a look at it.
        systemctl: the command as people have to type it, with `--user` where it belongs.
    """
    if facts.load_state == "masked":
        raise RestartError(
            Reason.SERVICE_DISABLED, f"{unit} is masked", f"Allow it with `{systemctl} unmask {unit}`."
        )
    if facts.load_state == "not-found":
        raise RestartError(
            Reason.RESTART_NOT_PERMITTED, f"{unit} is not installed", "Install the service again."
        )
    if facts.load_state != "loaded":
        raise RestartError(
            Reason.RESTART_NOT_PERMITTED,
            f"systemd cannot use {unit} ({facts.load_state or 'no answer'})",
            f"See what is wrong with it: `{systemctl} status {unit}`.",
        )


def unproven(unit: str, facts: UnitFacts, systemctl: str) -> RestartError:
    """The error for a unit that shows no new start although one was asked for."""
    if facts.result == "start-limit-hit":
        return RestartError(
            Reason.START_LIMITED,
            f"systemd refuses to start {unit} again",
            f"Clear it with `{systemctl} reset-failed {unit}`, and look for a drop-in with StartLimitBurst.",
        )
    return RestartError(
        Reason.RESTART_UNPROVEN,
        f"{unit} shows no new start ({facts.active_state}/{facts.sub_state})",
        f"See what the unit does: `{systemctl} cat {unit}`.",
    )


def refusal(unit: str, stderr: str, systemctl: str) -> RestartError:
    """The error for a call that systemctl itself refused; the text only chooses the advice."""
    line = next(iter(stderr.strip().splitlines()), "no message")
    lowered = stderr.lower()
    if "connect to bus" in lowered or "not been booted with systemd" in lowered:
        return RestartError(
            Reason.DOMAIN_UNAVAILABLE,
            f"the service manager cannot be reached: {line}",
            "For a user's service: `loginctl enable-linger`, and XDG_RUNTIME_DIR must be set.",
        )
    if "access denied" in lowered or "authentication" in lowered:
        return RestartError(
            Reason.RESTART_NOT_PERMITTED,
            f"systemd refuses: {line}",
            "Run it as root, or as the unit's owner.",
        )
    if "too quickly" in lowered or "start-limit" in lowered:
        return RestartError(
            Reason.START_LIMITED, f"systemd refuses: {line}", f"`{systemctl} reset-failed {unit}` clears it."
        )
    return RestartError(
        Reason.RESTART_NOT_PERMITTED, f"systemd refuses: {line}", f"See `{systemctl} status {unit}`."
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
