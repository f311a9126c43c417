"""What the proxy of this host passes on, by its own figures."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable

import structlog

from journeyman.adapters.local_http import local_client
from journeyman.core.liveness import Traffic
from journeyman.core.proxy.config import NO_NEWS_SECONDS, WANTED_PATH
from journeyman.errors import HostError

_log = structlog.get_logger()
SAMPLE = re.compile(
    r'^journeyman_proxy_(\w+)\{model="((?:[^"\\]|\\.)*)"(?:,outcome="(\w+)")?\} (\d+(?:\.\d+)?)$',
    re.MULTILINE,
)
RUNNING, WAITING = "requests_running", "requests_waiting"
DONE, ASKED = "requests_total done", "requests_total"
TOKENS, SECONDS = "timed_tokens_total", "generating_seconds_total"
TIMEOUT_SECONDS = 5.0


class ProxyTraffic:
    """Asks the proxy.

    Args:
        url: of its API; empty while there is no proxy.
        key: what it asks for; raises HostError if there is none.
    """

    def __init__(self, url: Callable[[], str], key: Callable[[], bytes]) -> None:
        self._url = url
        self._key = key
        # The mean speed of the streams of each model, as of the last answer.
        self.sustained: dict[str, float] = {}

    async def __call__(self) -> dict[str, Traffic] | None:
        """The traffic by model; None where the proxy cannot be asked."""
        text = await self._get("/metrics", TIMEOUT_SECONDS)
        if text is None:
            return None
        found = traffic_in(text)
        self.sustained = {
            model: one.tokens_per_second for model, one in found.items() if one.tokens_per_second is not None
        }
        return found

    async def wanted(self) -> list[str]:
        """The models that are asleep and for which the proxy holds requests.

        Waits until there is one, for a minute or so; returns none then, and at once where the proxy cannot
        be asked.
        """
        text = await self._get(WANTED_PATH, NO_NEWS_SECONDS + TIMEOUT_SECONDS)
        return [] if text is None else list(json.loads(text)["models"])

    async def _get(self, path: str, timeout_seconds: float) -> str | None:
        # Imported with the first question, as none is asked before the agent is ready.
        import httpx

        url = self._url()
        if not url:
            return None
        try:
            headers = {"Authorization": f"Bearer {self._key().decode()}"}
            async with local_client(url, timeout=timeout_seconds) as client:
                reply = await client.get(url.removesuffix("/v1") + path, headers=headers)
                reply.raise_for_status()
        except (httpx.HTTPError, HostError) as error:
            _log.info("proxy_not_asked", path=path, error=str(error))
            return None
        return reply.text


def traffic_in(metrics: str) -> dict[str, Traffic]:
    """Reads the proxy's figures, Prometheus text, by model."""
    found: dict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, escaped, outcome, number in SAMPLE.findall(metrics):
        model = re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], escaped)
        found[model][f"{name} {outcome}".strip()] += float(number)
        if outcome:
            found[model][ASKED] += int(number)
    return {
        model: Traffic(
            running=int(its[RUNNING]),
            done=int(its[DONE]),
            tokens_per_second=_mean(its[TOKENS], its[SECONDS]),
            waiting=int(its[WAITING]),
            asked=int(its[ASKED]),
        )
        for model, its in found.items()
        if {RUNNING, ASKED} & its.keys()
    }


def _mean(tokens: float, seconds: float) -> float | None:
    return round(tokens / seconds, 2) if tokens and seconds else None
