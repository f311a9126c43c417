"""Renews the client certificate of this node in its file, before it expires.

A new key is made for it, and the present certificate asks.  Both are kept until the new one has opened the
door once; then it takes the place of the old one, and whoever reads the file, the agent's own client and the
updater, finds it at its next request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

import structlog

from journeyman.core.certificate_request import Stage, approval_command, renewal_time
from journeyman.enrolment import Enrolment
from journeyman.errors import CertificateError, HostError, PendingError
from journeyman.model.certificate import CertificateFacts
from journeyman.ports import Certificates, Clock
from journeyman.renewing import RenewalLoop

log = structlog.get_logger(__name__)


class Keeper(Protocol):
    """The file."""

    def read(self) -> str:
        """The certificate with its chain; empty if there is none."""
        ...

    def write(self, certificate: str, key: str) -> None:
        """Replaces both durably.  Raises HostError."""
        ...


class CertificateLoop(RenewalLoop):
    """Looks at the certificate from time to time.

    Args:
        enrolment: asks for the next one, as the present one.
        certificates: reads it.
        keeper: where it lies.
        clock: time.
        offset_seconds: the server's clock minus ours.
        prove: opens the door with a certificate and its key; raises ControlPlaneError.
        fraction: of its life after which the next one is asked for, see `renewal_time`.
        interval_seconds: from one look to the next, and so to the next try.
    """

    def __init__(
        self,
        *,
        enrolment: Enrolment,
        certificates: Certificates,
        keeper: Keeper,
        clock: Clock,
        offset_seconds: Callable[[], float],
        prove: Callable[[str, str], Awaitable[None]],
        fraction: float,
        interval_seconds: float,
    ) -> None:
        super().__init__(clock, interval_seconds, "client certificate")
        self._enrolment = enrolment
        self._certificates = certificates
        self._keeper = keeper
        self._offset_seconds = offset_seconds
        self._prove = prove
        self._fraction = fraction

    async def look(self) -> None:
        """Renews the certificate if it is due.

        Raises:
            PendingError: the next one is asked for, and nobody has approved it yet.
            ControlPlaneError: it was refused, or nobody can be asked.
            HostError: it cannot be kept.
        """
        facts = self._present()
        now = self._clock.now() + timedelta(seconds=self._offset_seconds())
        if now < renewal_time(facts, self._fraction):
            # A key that is still kept is that of the present one: whoever put it there was cut off.
            self._enrolment.forget()
            return
        kept, stage = await self._enrolment.step(present_key=facts.key_digest)
        if stage is not Stage.ISSUED:
            lacks = "signed" if stage is Stage.APPROVED else "approved"
            raise PendingError(
                f"the client certificate expires at {facts.not_after:%Y-%m-%d %H:%M} UTC, and its successor"
                f" is not {lacks}",
                f"An administrator runs: {approval_command(kept.name)}",
            )
        await self._prove(kept.certificate, kept.key)
        self._keeper.write(kept.certificate, kept.key)
        self._enrolment.forget()
        log.info("certificate_renewed", expires=str(self._certificates.facts(kept.certificate).not_after))

    def _present(self) -> CertificateFacts:
        try:
            return self._certificates.facts(self._keeper.read())
        except CertificateError as error:
            raise HostError(
                "the file of our client certificate holds none", "Join again with --csr."
            ) from error
