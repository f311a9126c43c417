"""Which URLs the updater may ask, as its errors; the rules are shared with the agent.  Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from journeyman_updater.contract.http_rules import Hop, judge_hop
from journeyman_updater.errors import Reason, RequestError, UntrustedError


def check_hop(url: str, *, came_from: str | None, plain_hosts: frozenset[str]) -> None:
    """Judges a URL before it is asked for; see `judge_hop`.

    Raises:
        RequestError: BadRequest; it is no URL of ours.
        UntrustedError: SchemeDowngrade.
    """
    hop = judge_hop(url, came_from=came_from, plain_hosts=plain_hosts)
    if hop is Hop.NO_URL:
        raise RequestError(Reason.BAD_REQUEST, f"{url[:200]!r} is no URL that can be fetched", "Use https.")
    if hop is Hop.DOWNGRADED:
        how = f"{urlsplit(came_from).hostname} redirects" if came_from else "the URL points"
        raise UntrustedError(
            Reason.SCHEME_DOWNGRADE,
            f"{how} to {urlsplit(url).hostname} over plain http",
            "Serve the artifact over https, or name the host in plain_http_hosts of updater.json.",
        )
