"""Reason codes are an interface: they are all there, and each is said in one way."""

from __future__ import annotations

import re

from journeyman_updater.errors import (
    HostError,
    PostponedError,
    Reason,
    ReleaseError,
    RequestError,
    RestartError,
    SourceError,
    TrialError,
    UntrustedError,
)

PROMISED = """
    BadRequest Pinned Denylisted SelfUpdateUnavailable NotWritable
    InsufficientDisk SchemeDowngrade TooManyRedirects HttpStatus Stalled TooLarge
    LengthMismatch HashMismatch BadSignature Expired RollbackRefused NotExecutableFormat WrongArch
    WrongOS Compressed HtmlBody NoExec CodeSignatureInvalid ExecCheckFailed ExecCheckTimeout
    VersionMismatch DrainTimeout RestartNotPermitted RestartUnproven OldPlist NeedDaemonReload
    StartLimited DomainUnavailable ServiceDisabled CrashLoop NotReady Unhealthy RolledBack
    RollbackFailed AttemptsExhausted Superseded
"""


def test_promised_codes_never_go_away() -> None:
    """A code that dashboards and scripts may know keeps its spelling."""
    assert set(PROMISED.split()) <= {str(reason) for reason in Reason}


def test_codes_fit_a_condition() -> None:
    """Each code is CamelCase, as the reason of a Kubernetes condition has to be."""
    assert all(re.fullmatch(r"[A-Z][A-Za-z]+", reason) for reason in Reason)


def test_only_the_release_itself_is_evidence_against_it() -> None:
    """Fault decides what follows: who rejects, and who may be tried again by itself."""
    kinds = (
        RequestError, PostponedError, SourceError, UntrustedError,
        ReleaseError, HostError, RestartError, TrialError,
    )  # fmt: skip
    assert [kind for kind in kinds if kind.rejects] == [ReleaseError, TrialError]
    transient = [PostponedError, SourceError, HostError, RestartError]
    assert [kind for kind in kinds if kind.is_transient] == transient
