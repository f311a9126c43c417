"""A CertificateSigningRequest for this node: what it says, what its status means, when the next is due.

Pure: keys and certificates are made and read behind the port `Certificates`.  The rules are those of
certificates.k8s.io/v1 and of its signer for clients of the API server, for which no controller approves.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from journeyman.errors import CertificateError, ControlPlaneError, DeniedError, UnauthorizedError
from journeyman.model.certificate import CertificateFacts
from journeyman.model.resources import CERTIFICATE_REQUESTS

SIGNER = "kubernetes.io/kube-apiserver-client"
# A key on a curve signs; key encipherment is for RSA alone.
USAGES = ("digital signature", "client auth")
USER_PREFIX, GROUP = "journeyman:node:", "journeyman:nodes"
# Nodes that joined in one hour shall not all want an administrator in another one.
SPREAD = 0.1
# So far the clocks of signer and API server may be apart; kube-controller-manager backdates by as much.
SKEW = timedelta(minutes=5)
JOIN_AGAIN = "Join again: journeyman join URL --csr --token-file FILE"


class Stage(StrEnum):
    """How far a request has come."""

    PENDING = "pending"
    APPROVED = "approved"
    ISSUED = "issued"


@dataclass(frozen=True)
class Answer:
    """What the status of a request says.

    Attributes:
        stage: how far it is.
        certificate: PEM text once it is issued; empty before.
    """

    stage: Stage
    certificate: str = ""


def user_of(node: str) -> str:
    """The user as whom a node with a certificate speaks."""
    return USER_PREFIX + node


def request_name(node: str, key_digest: str) -> str:
    """What a request is called: the same for the same node and key, so that a repeated join finds its own."""
    return f"journeyman-{node}-{key_digest[:16]}"


def request_object(name: str, request: str, life_seconds: int | None) -> dict[str, Any]:
    """The object to POST.

    Args:
        name: of the object.
        request: PEM text of the PKCS #10 request.
        life_seconds: the life that is wished for; None for what the signer gives.  Signers before
            Kubernetes 1.22 do not know it, and no signer has to obey.
    """
    spec: dict[str, Any] = {
        "request": base64.b64encode(request.encode()).decode(),
        "signerName": SIGNER,
        "usages": list(USAGES),
    }
    if life_seconds is not None:
        spec["expirationSeconds"] = life_seconds
    return {
        "apiVersion": CERTIFICATE_REQUESTS.api_version,
        "kind": CERTIFICATE_REQUESTS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def is_same_request(found: Mapping[str, Any], request: str) -> bool:
    """Whether an object that was found asks for the very certificate that we want."""
    spec = found.get("spec")
    if not isinstance(spec, Mapping):
        return False
    wanted = base64.b64encode(request.encode()).decode()
    return spec.get("request") == wanted and spec.get("signerName") == SIGNER


def answer_of(found: Mapping[str, Any], name: str) -> Answer:
    """What the status of our request says.

    Args:
        found: the object.
        name: of it, for messages.

    Raises:
        DeniedError: an administrator has denied it.
        CertificateError: the signer has failed, or what it put there cannot be read.
    """
    status = found.get("status")
    status = status if isinstance(status, Mapping) else {}
    conditions = {
        each.get("type"): each
        for each in status.get("conditions") or ()
        if isinstance(each, Mapping) and each.get("status") == "True"
    }
    if denied := conditions.get("Denied"):
        raise DeniedError(f"the request {name} was denied{_why(denied)}", once_more(name))
    if failed := conditions.get("Failed"):
        raise CertificateError(f"the signer could not sign {name}{_why(failed)}", once_more(name))
    if encoded := status.get("certificate"):
        return Answer(Stage.ISSUED, _decoded(encoded, name))
    return Answer(Stage.APPROVED if "Approved" in conditions else Stage.PENDING)


def check_issued(facts: CertificateFacts, *, node: str, key_digest: str, name: str, now: datetime) -> None:
    """Refuses a certificate that is of no use to this node.

    Args:
        facts: what it says.
        node: our name.
        key_digest: of our key.
        name: of the request, for messages.
        now: by the server's clock.

    Raises:
        CertificateError: it is for another key or name, or not good at this time.
    """
    if facts.key_digest != key_digest:
        raise CertificateError(f"the certificate in {name} is of another key", once_more(name))
    if facts.user != user_of(node):
        raise CertificateError(
            f"the certificate in {name} is for {facts.user!r}, not for {user_of(node)!r}", once_more(name)
        )
    if now >= facts.not_after:
        raise CertificateError(
            f"the certificate in {name} expired at {_time(facts.not_after)}", once_more(name)
        )
    if now < facts.not_before - SKEW:
        raise CertificateError(
            f"the certificate in {name} is not good before {_time(facts.not_before)}",
            "Compare the clocks of the signer and of the control plane.",
        )


def renewal_time(facts: CertificateFacts, part: float) -> datetime:
    """When the next certificate is asked for.

    Args:
        facts: of the present one; its key decides by how much this is early, up to a tenth of its life.
        part: of its life that passes at most, in (0, 1).
    """
    chance = int(facts.key_digest[:8], 16) / 0xFFFF_FFFF
    return facts.not_before + (facts.not_after - facts.not_before) * (part - SPREAD * chance)


def approval_command(name: str) -> str:
    """What an administrator runs."""
    return f"kubectl certificate approve {name}"


def once_more(name: str) -> str:
    """What helps where a request came to nothing."""
    return f"Ask the administrator: after `kubectl delete csr {name}` it can be asked for again."


def expired_certificate(facts: CertificateFacts, refusal: ControlPlaneError) -> UnauthorizedError:
    """A refusal with its reason, for a certificate that is over."""
    return UnauthorizedError(
        f"{refusal.message}: the client certificate expired at {_time(facts.not_after)}",
        JOIN_AGAIN,
        status=refusal.status,
        reason=refusal.reason,
    )


def _why(condition: Mapping[str, Any]) -> str:
    words = [str(condition[key]) for key in ("reason", "message") if condition.get(key)]
    return f" ({': '.join(words)})" if words else ""


def _decoded(encoded: object, name: str) -> str:
    try:
        return base64.b64decode(str(encoded), validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise CertificateError(f"the certificate in {name} is no PEM text", once_more(name)) from error


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
