"""Waits until an administrator has approved the certificate of a node that joins."""

from __future__ import annotations

from http import HTTPStatus

from journeyman.core.certificate_request import Stage, approval_command
from journeyman.enrolment import Enrolment, Kept
from journeyman.errors import ControlPlaneError, PendingError, UnauthorizedError, UnreachableError
from journeyman.joining.model import Say
from journeyman.ports import Clock

PROGRESS_SECONDS = 30.0
_WAITS_FOR = {
    Stage.PENDING: "nobody has approved it yet",
    Stage.APPROVED: "it is approved, and not yet signed",
}


async def obtained(
    enrolment: Enrolment, clock: Clock, say: Say, *, wait_seconds: float, poll_seconds: float
) -> Kept:
    """The certificate with its key.

    Args:
        enrolment: asks for it.
        clock: time.
        say: is told what to do, and how it goes.
        wait_seconds: how long at most.
        poll_seconds: from one look to the next.

    Raises:
        PendingError: the time is over; a later call goes on with the same request.
        DeniedError: an administrator said no.
        ControlPlaneError: it cannot be asked for.
    """
    begun = clock.monotonic()
    kept, stage = await enrolment.step()
    if stage is not Stage.ISSUED:
        say(f"asked for a certificate: CertificateSigningRequest {kept.name}")
        say(f"an administrator of the cluster runs: {approval_command(kept.name)}")
    told, trouble = begun, ""
    while stage is not Stage.ISSUED:
        now = clock.monotonic()
        left = begun + wait_seconds - now
        if left <= 0:
            raise _too_late(kept.name, stage, trouble, wait_seconds)
        if now - told >= PROGRESS_SECONDS:
            say(f"{trouble or _WAITS_FOR[stage]}; waiting for another {left:.0f} s")
            told = now
        await clock.sleep(min(poll_seconds, left))
        try:
            kept, stage = await enrolment.step()
            trouble = ""
        except ControlPlaneError as error:
            if not _may_pass(error):
                raise _advised(error) from error
            trouble = error.message
    return kept


def refused_newcomer(error: UnauthorizedError, node: str) -> UnauthorizedError:
    """What it means that a certificate that was just issued opens no door; the request is kept meanwhile."""
    advice = "See that the API server's --client-ca-file holds the signer's CA, and that their clocks agree"
    if error.status == HTTPStatus.FORBIDDEN:
        made = f"journeyman cluster manifests {node} --credential certificate"
        advice = f"An administrator runs `{made} | kubectl apply -f -`"
    return UnauthorizedError(
        f"the new certificate opens no door yet: {error.message}",
        f"{advice}; then repeat this command.",
        status=error.status,
        reason=error.reason,
    )


def _may_pass(error: ControlPlaneError) -> bool:
    """Whether the next look may find it gone."""
    if isinstance(error, UnreachableError):
        return True
    return error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _advised(error: ControlPlaneError) -> ControlPlaneError:
    """A token that has expired meanwhile costs nothing but another one."""
    if error.status != HTTPStatus.UNAUTHORIZED:
        return error
    return UnauthorizedError(
        error.message,
        "Take a new token and repeat this command: it goes on with the same request.",
        status=error.status,
        reason=error.reason,
    )


def _too_late(name: str, stage: Stage, trouble: str, wait_seconds: float) -> PendingError:
    if trouble:
        return PendingError(
            f"{name} could not be looked at in the end, after {wait_seconds:.0f} s: {trouble}",
            "Repeat this command: it goes on with the same request.",
        )
    if stage is Stage.APPROVED:
        return PendingError(
            f"{name} is approved, but no signer has signed it within {wait_seconds:.0f} s",
            "See that kube-controller-manager runs with a signing CA; then repeat this command.",
        )
    return PendingError(
        f"nobody has approved {name} within {wait_seconds:.0f} s",
        f"An administrator runs `{approval_command(name)}`; then repeat this command: it goes on with it.",
    )
