"""What the control plane is told about a credential of ours that has to be renewed."""

from __future__ import annotations

from journeyman.core.gates.conditions import Told
from journeyman.errors import CertificateError, ControlPlaneError, DeniedError, PendingError
from journeyman.model.meta import ConditionStatus

EXPIRING = "CredentialExpiring"


def told_of(renews: str, problem: Exception | None) -> tuple[Told, ...]:
    """The condition of this moment; nothing for a credential that nobody renews.

    Args:
        renews: what is renewed, such as `token`; empty for nothing.
        problem: why the last try to renew it came to nothing, or None.
    """
    if not renews:
        return ()
    if problem is None:
        return (Told(EXPIRING, ConditionStatus.FALSE, "Renewable", f"the {renews} is renewed in time"),)
    advice = getattr(problem, "advice", "")
    message = f"{problem}. {advice}" if advice else str(problem)
    return (Told(EXPIRING, ConditionStatus.TRUE, _reason(problem), message),)


def _reason(problem: Exception) -> str:
    for kind, reason in (
        (PendingError, "AwaitingApproval"),
        (DeniedError, "Denied"),
        (CertificateError, "SignerFailed"),
        (ControlPlaneError, "NotRenewed"),
    ):
        if isinstance(problem, kind):
            return reason
    return "NotKept"
