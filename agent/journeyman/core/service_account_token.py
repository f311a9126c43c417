"""When the token of a ServiceAccount has to be renewed, and by which request.

The token is read, not verified: that is the server's business.  What is no such token renews itself
elsewhere, or never expires, and is left alone.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from journeyman.errors import ControlPlaneError, UnauthorizedError

SUBJECT = ("system", "serviceaccount")
# As the kubelet does it: at four fifths of its life, so that a long outage finds one that is still good.
RENEWED_AT = 0.8
# The API server gives no shorter one.
SHORTEST_SECONDS = 600


@dataclass(frozen=True)
class AccountToken:
    """What a token says of itself.

    Attributes:
        namespace: of its ServiceAccount.
        account: the name of it.
        issued: when it became good.
        expires: when it ceases to be.
    """

    namespace: str
    account: str
    issued: datetime
    expires: datetime

    @property
    def path(self) -> str:
        """Where a new one is asked for: TokenRequest."""
        return f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.account}/token"

    def request(self) -> dict[str, Any]:
        """The TokenRequest for one of the same life."""
        life = max(int((self.expires - self.issued).total_seconds()), SHORTEST_SECONDS)
        return {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": life},
        }

    def is_due(self, now: datetime) -> bool:
        """Whether it has to be renewed; `now` is by the server's clock."""
        return now >= self.issued + (self.expires - self.issued) * RENEWED_AT


def account_token(text: str) -> AccountToken | None:
    """What a bearer token says, if it is that of a ServiceAccount and expires; None for any other."""
    try:
        payload = text.split(".")[1]
        padded = payload + "=" * (-len(payload) % 4)
        said: Any = json.loads(base64.urlsafe_b64decode(padded))
        subject = said["sub"].split(":")
        issued, expires = (datetime.fromtimestamp(said[name], UTC) for name in ("iat", "exp"))
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError, binascii.Error):
        return None
    if tuple(subject[:2]) != SUBJECT or len(subject) != 4 or expires - issued < timedelta(seconds=1):  # noqa: PLR2004
        return None
    return AccountToken(subject[2], subject[3], issued, expires)


def expiry_of(text: str, refusal: ControlPlaneError, now: datetime) -> UnauthorizedError | None:
    """A refusal with its reason, where the token that was shown has expired; None where that is not why.

    Args:
        text: the bearer token.
        refusal: what the server said.
        now: by the server's clock.
    """
    token = account_token(text)
    if token is None or now < token.expires:
        return None
    command = f"kubectl create token {token.account} --namespace {token.namespace}"
    return UnauthorizedError(
        f"{refusal.message}: the token expired at {token.expires:%Y-%m-%d %H:%M} UTC",
        f"Put a new one into token_file: `{command}` prints it.",
        status=refusal.status,
        reason=refusal.reason,
    )


def token_in(reply: Any) -> str:
    """The new token in the answer to a TokenRequest; empty if there is none."""
    match reply:
        case {"status": {"token": str(token)}} if token and token.isascii() and " " not in token:
            return token
    return ""
