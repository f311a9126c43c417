"""Renews the token of this node's ServiceAccount in its file, before it expires.

Whoever reads the file, the agent's own client and the updater, finds the new one at its next request.  A
token that is none of a ServiceAccount's, or lies in a file of somebody else, is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

import structlog

from journeyman.core.service_account_token import account_token, token_in
from journeyman.errors import ControlPlaneError
from journeyman.ports import Clock, JsonObject
from journeyman.renewing import RenewalLoop

log = structlog.get_logger(__name__)


class TokenApi(Protocol):
    """What is needed of the control plane."""

    async def post(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        """Asks for a token.  Raises ControlPlaneError."""
        ...

    def clock_offset_seconds(self) -> float:
        """The server's clock minus ours."""
        ...


class TokenLoop(RenewalLoop):
    """Looks at the token from time to time.

    Args:
        api: the control plane.
        clock: time.
        read: the token as it is now; empty if there is none.
        write: replaces it durably; raises HostError.
        interval_seconds: from one look to the next, and so to the next try.
    """

    def __init__(
        self,
        *,
        api: TokenApi,
        clock: Clock,
        read: Callable[[], str],
        write: Callable[[str], None],
        interval_seconds: float,
    ) -> None:
        super().__init__(clock, interval_seconds)
        self._api = api
        self._read = read
        self._write = write

    async def look(self) -> None:
        """Renews the token if it is due.  Raises ControlPlaneError and HostError."""
        token = account_token(self._read())
        self._renews = "token" if token else ""
        now = self._clock.now() + timedelta(seconds=self._api.clock_offset_seconds())
        if token is None or not token.is_due(now):
            return
        renewed = token_in(await self._api.post(token.path, token.request()))
        if account_token(renewed) is None:
            raise ControlPlaneError("the answer to a TokenRequest holds no token of a ServiceAccount")
        self._write(renewed)
        log.info("token_renewed", account=token.account)
