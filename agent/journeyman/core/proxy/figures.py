"""What the proxy counts, as Prometheus text.  Labels are names of routes and of outcomes alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

FIRST_TOKEN_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
SHORTEST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1, 60
# How much the newest request weighs in the mean that tells clients when to try again.
NEWEST_WEIGHT = 0.2


class Outcome(StrEnum):
    """How a request ended."""

    DONE = "done"
    CLIENT_GONE = "client_gone"
    SERVER_ERROR = "server_error"
    """The server said so, with a status or with an event inside a 200."""
    TRUNCATED = "truncated"
    """The reply ended before the model did."""
    STALLED = "stalled"
    """Nothing came for too long."""
    REFUSED = "refused"
    """We have not passed it on."""


@dataclass(frozen=True)
class Ending:
    """One request that has ended.

    Attributes:
        outcome: how.
        queued_seconds: how long it waited for its turn and for its model.
        seconds: how long the server had it.
        first_token_seconds: from passing it on to the first text; None if none came.
        tokens: how many came.
        generating_seconds: from the first to the last text.
    """

    outcome: Outcome
    queued_seconds: float = 0.0
    seconds: float = 0.0
    first_token_seconds: float | None = None
    tokens: int = 0
    generating_seconds: float = 0.0


class Figures:
    """All counters of one proxy since its start."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._tokens: Counter[str] = Counter()
        self._timed_tokens: Counter[str] = Counter()
        self._buckets: dict[str, Counter[float]] = defaultdict(Counter)
        self._sums: dict[str, defaultdict[str, float]] = {
            name: defaultdict(float) for name in ("queue", "first_token", "generating")
        }
        self._first_tokens: Counter[str] = Counter()
        self._rate: dict[str, float] = {}
        self._mean_seconds: dict[str, float] = {}

    def add(self, model: str, ending: Ending) -> None:
        """Counts one request.

        Args:
            model: the name of its route; never what a client wrote, or a client could fill our memory.
            ending: how it ended.
        """
        self._requests[model, ending.outcome.value] += 1
        self._tokens[model] += ending.tokens
        self._sums["queue"][model] += ending.queued_seconds
        self._sums["generating"][model] += ending.generating_seconds
        if ending.generating_seconds > 0:
            after_the_first = max(0, ending.tokens - 1)
            self._timed_tokens[model] += after_the_first
            self._rate[model] = after_the_first / ending.generating_seconds
        if ending.first_token_seconds is not None:
            self._first_tokens[model] += 1
            self._sums["first_token"][model] += ending.first_token_seconds
            for bucket in FIRST_TOKEN_BUCKETS:
                self._buckets[model][bucket] += ending.first_token_seconds <= bucket
        if ending.outcome is not Outcome.REFUSED:
            mean = self._mean_seconds.get(model, ending.seconds)
            self._mean_seconds[model] = mean + NEWEST_WEIGHT * (ending.seconds - mean)

    def retry_after_seconds(self, model: str, waiting: int, slots: int) -> int:
        """When a client that found the queue full may find a place: by then half of it will be done."""
        seconds = self._mean_seconds.get(model, 0.0) * waiting / 2 / max(slots, 1)
        return min(max(SHORTEST_RETRY_SECONDS, round(seconds)), LONGEST_RETRY_SECONDS)

    def text(self, *, running: Mapping[str, int], waiting: Mapping[str, int], connections: int) -> bytes:
        """Everything, in the Prometheus text format; the arguments are what is so at this moment."""
        requests = ((f'model="{_escaped(m)}",outcome="{o}"', n) for (m, o), n in self._requests.items())
        gauges: dict[str, tuple[str, Mapping[str, float]]] = {
            "tokens_per_second": ("of the last reply", self._rate),
            "requests_running": ("that servers have now", running),
            "requests_waiting": ("for their turn, or for a model that is starting", waiting),
        }
        counters: dict[str, tuple[str, Mapping[str, float]]] = {
            "tokens_total": ("generated", self._tokens),
            "timed_tokens_total": (
                "of streams, but for the first of each",
                self._timed_tokens,
            ),
            "generating_seconds_total": ("from first to last token", self._sums["generating"]),
            "queue_seconds_total": ("that requests waited", self._sums["queue"]),
        }
        blocks = [
            _block("requests_total", "counter", "requests by how they ended", requests),
            *(_block(name, "gauge", help_, _by_model(values)) for name, (help_, values) in gauges.items()),
            *(_block(name, "counter", help_, _by_model(sums)) for name, (help_, sums) in counters.items()),
            _block("connections", "gauge", "clients that are connected", [("", connections)]),
            *self._first_token_histogram(),
        ]
        return "\n".join(blocks).encode() + b"\n"

    def _first_token_histogram(self) -> Iterable[str]:
        name = "journeyman_proxy_first_token_seconds"
        yield f"# HELP {name} from passing a request on to its first text\n# TYPE {name} histogram"
        for model, count in self._first_tokens.items():
            label = f'model="{_escaped(model)}"'
            for bucket in FIRST_TOKEN_BUCKETS:
                yield f'{name}_bucket{{{label},le="{bucket:g}"}} {self._buckets[model][bucket]}'
            yield f'{name}_bucket{{{label},le="+Inf"}} {count}'
            yield f"{name}_sum{{{label}}} {self._sums['first_token'][model]:.6f}"
            yield f"{name}_count{{{label}}} {count}"


def _by_model(values: Mapping[str, float]) -> Iterable[tuple[str, float]]:
    return ((f'model="{_escaped(model)}"', value) for model, value in values.items())


def _block(name: str, kind: str, help_: str, samples: Iterable[tuple[str, float]]) -> str:
    full = f"journeyman_proxy_{name}"
    lines = [f"# HELP {full} {help_}", f"# TYPE {full} {kind}"]
    for labels, value in samples:
        number = value if isinstance(value, int) else f"{value:.6f}"
        lines.append(f"{full}{{{labels}}} {number}" if labels else f"{full} {number}")
    return "\n".join(lines)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
