"""What the proxy passes on, read from its own figures."""

from __future__ import annotations

from journeyman.adapters.proxy_traffic import traffic_in
from journeyman.core.liveness import Traffic
from journeyman.core.proxy.figures import Ending, Figures, Outcome


def test_the_proxys_own_text_is_understood() -> None:
    """What runs, and what was answered to its end, by model, whatever characters its name has."""
    figures = Figures()
    for outcome in (Outcome.DONE, Outcome.DONE, Outcome.STALLED, Outcome.CLIENT_GONE):
        figures.add('odd "name"\\', Ending(outcome))
    text = figures.text(running={"busy": 3, 'odd "name"\\': 1}, waiting={"busy": 2}, connections=9).decode()
    assert traffic_in(text) == {'odd "name"\\': Traffic(1, 2, asked=4), "busy": Traffic(3, 0, waiting=2)}


def test_the_mean_speed_is_that_of_streams_alone() -> None:
    """Tokens of answers that came in one piece have no time of their own, so they do not count."""
    figures = Figures()
    figures.add("m", Ending(Outcome.DONE, tokens=11, generating_seconds=1.0))
    figures.add("m", Ending(Outcome.DONE, tokens=31, generating_seconds=1.0))
    figures.add("m", Ending(Outcome.DONE, tokens=500))
    text = figures.text(running={}, waiting={}, connections=0).decode()
    assert traffic_in(text) == {"m": Traffic(0, 3, 20.0, asked=3)}


def test_a_proxy_that_has_done_nothing_tells_nothing() -> None:
    """No model is invented."""
    assert traffic_in(Figures().text(running={}, waiting={}, connections=0).decode()) == {}
