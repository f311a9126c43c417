"""Tokens of ServiceAccounts as an API server makes them, but for the signature, which no agent can prove."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any


def made_token(namespace: str, account: str, issued: datetime, expires: datetime, **claims: Any) -> str:
    """A JSON Web Token with these claims."""
    said = {
        "sub": f"system:serviceaccount:{namespace}:{account}",
        "iat": int(issued.timestamp()),
        "exp": int(expires.timestamp()),
        **claims,
    }
    parts = ({"alg": "RS256"}, said)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, "signature"])
