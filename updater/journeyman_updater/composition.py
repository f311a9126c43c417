"""Composes the real ports of one state root."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from journeyman_updater.adapters.exec_check import SubprocessExecCheck
from journeyman_updater.adapters.fetch_file import FileFetcher
from journeyman_updater.adapters.fetch_http import HttpFetcher
from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.adapters.host_facts import check_state_root, service_user, this_host
from journeyman_updater.adapters.http_source import SourceSettings
from journeyman_updater.adapters.leases import ProcessLeases
from journeyman_updater.adapters.minisign import MinisignVerifier
from journeyman_updater.adapters.node_api import NodeApi
from journeyman_updater.adapters.service.agent_unit import agent_unit
from journeyman_updater.adapters.service.choice import service_manager
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.adapters.unpack import TarUnpacker
from journeyman_updater.contract import StateRoot
from journeyman_updater.core.health import HealthLimits
from journeyman_updater.model.journal import Record
from journeyman_updater.model.state import Spec
from journeyman_updater.ports import Clock, Progress
from journeyman_updater.settings import Settings
from journeyman_updater.steps.base import Limits, Records, Tools


def _ignore_record(record: Record) -> None:
    """Nobody looks."""


def compose(
    root: StateRoot,
    settings: Settings,
    progress: Progress,
    clock: Clock | None = None,
    noted: Callable[[Record], None] = _ignore_record,
) -> Tools:
    """The real ports for one state root.

    Args:
        root: the state root.
        settings: intervals and deadlines.
        progress: is told how a fetch goes.
        clock: time; the host's own if it is left out.
        noted: is shown each record of the journal.
    """
    clock, files = clock or SystemClock(), RealFileSystem()
    source = SourceSettings(
        stall_seconds=settings.stall_seconds,
        plain_http_hosts=frozenset(settings.plain_http_hosts),
        node_file=root.node_file,
    )
    records = Records(root, files, clock, noted=noted)
    return Tools(
        root=root,
        files=files,
        clock=clock,
        records=records,
        fetcher=FileFetcher(files, HttpFetcher(source, files, clock)),
        verifier=MinisignVerifier(),
        unpacker=TarUnpacker(files),
        exec_check=SubprocessExecCheck(
            clock, deadline_seconds=settings.exec_check_seconds, user=service_user(root.run)
        ),
        manager=service_manager(
            settings.service,
            root,
            clock,
            stop_seconds=settings.stop_seconds,
            service_folder=settings.service_folder,
            launchctl=settings.launchctl,
        ),
        unit=agent_unit(
            settings.service,
            root.path,
            clock,
            SubprocessExecCheck(clock, deadline_seconds=settings.exec_check_seconds).ask,
            service_folder=settings.service_folder,
        ),
        plane=NodeApi(root.node_file, timeout_seconds=settings.api_seconds),
        leases=ProcessLeases(root.versions),
        limits=_limits(settings, _ready_seconds(records)),
        host=this_host(),
        check_room=check_state_root,
        allow_unsigned=settings.allow_unsigned,
        new_nonce=lambda: secrets.token_hex(16),
        progress=progress,
    )


def _ready_seconds(records: Records) -> float:
    try:
        return records.load().spec.ready_seconds
    except (ValueError, OSError):
        # The transaction mends the file, with the same default.
        return Spec().ready_seconds


def _limits(settings: Settings, ready_seconds: float) -> Limits:
    health = HealthLimits(
        ready=ready_seconds,
        margin=settings.ready_margin_seconds,
        start=settings.start_seconds,
        beat=settings.beat_seconds,
        accept=settings.accept_seconds,
        soak=settings.soak_seconds,
        patience=settings.patience_seconds,
    )
    return Limits(
        health=health,
        drain=settings.drain_seconds,
        proof=settings.proof_seconds,
        poll=settings.poll_seconds,
        gates_age=settings.gates_age_seconds,
        retry_pause=settings.retry_pause_seconds,
    )
