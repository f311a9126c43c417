"""Asks for a client certificate of this node, for `join` and for the loop that renews it.

All that a try needs later lies in one document from before the first request on: the key, the request, and
the certificate once it is there.  So whoever is cut off at any point goes on with the same key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Protocol

from journeyman.core.certificate_request import (
    GROUP,
    Answer,
    Stage,
    answer_of,
    check_issued,
    is_same_request,
    once_more,
    request_name,
    request_object,
    user_of,
)
from journeyman.errors import CertificateError, ConflictError, ControlPlaneError
from journeyman.model.certificate import CertificateFacts
from journeyman.model.resources import CERTIFICATE_REQUESTS
from journeyman.ports import Certificates, Clock, Collection, JsonObject, ObjectRef, RemovableDocument

REQUESTS = Collection(CERTIFICATE_REQUESTS.group, CERTIFICATE_REQUESTS.version, CERTIFICATE_REQUESTS.plural)
FORMAT = 1


class RequestApi(Protocol):
    """What is needed of the control plane."""

    async def get(self, ref: ObjectRef) -> JsonObject:
        """Returns the object.  Raises NotFoundError where there is none."""
        ...

    async def create(self, collection: Collection, body: Mapping[str, Any]) -> JsonObject:
        """Returns the object as stored.  Raises ConflictError where the name is taken."""
        ...

    def clock_offset_seconds(self) -> float:
        """The server's clock minus ours."""
        ...


@dataclass(frozen=True)
class Kept:
    """What the document holds.

    Attributes:
        server: for which control plane.
        node: for which FleetNode.
        key: PEM text of the private key.
        request: PEM text of the request.
        key_digest: of the key.
        certificate: PEM text with its chain, once it was issued.
    """

    server: str
    node: str
    key: str = field(repr=False)
    request: str
    key_digest: str
    certificate: str = ""

    @property
    def name(self) -> str:
        """Of the CertificateSigningRequest."""
        return request_name(self.node, self.key_digest)


class Enrolment:
    """One node's wish for a certificate.

    Args:
        api: the control plane, as whoever may ask there.
        certificates: makes keys, reads certificates.
        memory: where the try is kept.
        clock: for the time by the server's clock.
        server: the URL of the control plane.
        node: the name of the FleetNode.
        life_seconds: the life that is wished for, or None.
    """

    def __init__(
        self,
        *,
        api: RequestApi,
        certificates: Certificates,
        memory: RemovableDocument,
        clock: Clock,
        server: str,
        node: str,
        life_seconds: int | None,
    ) -> None:
        self._api = api
        self._certificates = certificates
        self._memory = memory
        self._clock = clock
        self._server = server
        self._node = node
        self._life_seconds = life_seconds

    async def step(self, *, present_key: str = "") -> tuple[Kept, Stage]:
        """Goes as far as it can now.

        Args:
            present_key: digest of the key in use, which a new certificate must not be of; empty for none.

        Returns:
            What is kept, with the certificate if the stage is `ISSUED`.

        Raises:
            DeniedError: an administrator said no.
            CertificateError: the signer failed, or what it issued is of no use.
            ControlPlaneError: it cannot be asked.
            HostError: the document cannot be written.
        """
        kept = self._kept()
        if kept is None or kept.key_digest == present_key:
            made = self._certificates.new_request(user_of(self._node), GROUP)
            kept = Kept(self._server, self._node, made.key, made.request, made.key_digest)
            self._save(kept)
        if kept.certificate and not self._is_over(kept):
            return kept, Stage.ISSUED
        answer = await self._answer(kept)
        if answer.stage is not Stage.ISSUED:
            return kept, answer.stage
        facts = self._issued(kept.name, answer.certificate)
        if self._now() >= facts.not_after:
            # A request issues one certificate and no other: the next try takes another key.
            self.forget()
        check_issued(facts, node=kept.node, key_digest=kept.key_digest, name=kept.name, now=self._now())
        kept = replace(kept, certificate=answer.certificate)
        self._save(kept)
        return kept, Stage.ISSUED

    def forget(self) -> None:
        """Removes the key that was kept for the try.  Raises HostError."""
        self._memory.remove()

    def _issued(self, name: str, certificate: str) -> CertificateFacts:
        try:
            return self._certificates.facts(certificate)
        except CertificateError as error:
            raise CertificateError(
                f"what was issued for {name} is no certificate: {error.message}", once_more(name)
            ) from error

    def _is_over(self, kept: Kept) -> bool:
        return self._now() >= self._certificates.facts(kept.certificate).not_after

    def _now(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self._api.clock_offset_seconds())

    def _kept(self) -> Kept | None:
        """What an earlier try left, if it was for the same node of the same server."""
        match self._memory.load():
            case {
                "format": 1, "server": self._server, "node": self._node,
                "key": str(key), "request": str(request), "keyDigest": str(digest),
                "certificate": str(certificate),
            }:  # fmt: skip
                return Kept(self._server, self._node, key, request, digest, certificate)
        return None

    def _save(self, kept: Kept) -> None:
        fields = asdict(kept)
        self._memory.save({"format": FORMAT, "keyDigest": fields.pop("key_digest"), **fields})

    async def _answer(self, kept: Kept) -> Answer:
        """What the control plane says about the request, which is made there if it is not there."""
        ref = REQUESTS.named(kept.name)
        try:
            found = await self._api.get(ref)
        except ControlPlaneError as error:
            # It is not there, or nothing of its kind is known there: the POST tells which.
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            found = await self._created(kept, ref)
        if not is_same_request(found, kept.request):
            raise ConflictError(
                f"{kept.name} is there already, and is not this machine's",
                f"Somebody else has made it: have an administrator look at it, then `kubectl delete csr"
                f" {kept.name}`.",
            )
        return answer_of(found, kept.name)

    async def _created(self, kept: Kept, ref: ObjectRef) -> JsonObject:
        body = request_object(kept.name, kept.request, self._life_seconds)
        try:
            return await self._api.create(REQUESTS, body)
        except ConflictError:
            # The answer to an earlier try was lost on its way, or is still under way.
            return await self._api.get(ref)
        except ControlPlaneError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            raise CertificateError(
                f"{self._server} signs no certificates: it serves no {REQUESTS.group}",
                "On an embedded plane join with a token of `journeyman plane join-token`, without --csr.",
                status=error.status,
            ) from error
