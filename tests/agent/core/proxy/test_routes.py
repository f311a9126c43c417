"""The file that says which model answers where."""

from __future__ import annotations

import json

import pytest

from journeyman.core.proxy.routes import Route, RouteState, Upstream, routes_from_json, routes_to_json


def test_routes_come_back_as_they_were_written() -> None:
    """Order and all fields survive, and a field of a newer writer is ignored."""
    routes = [
        Route("b", RouteState.READY, "http://127.0.0.1:1/v1", "/k", "inner", 2, 4096),
        Route("a", RouteState.STARTING, reason="loading", services=("default/a", "work/a")),
        Route("c", RouteState.FAILED, reason="no such file"),
    ]
    written = json.loads(routes_to_json(routes))
    written["routes"][0]["newer"] = 1
    assert list(routes_from_json(json.dumps(written).encode()).values()) == routes


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:80/v1",
        "http://example.org:80/v1",
        "https://127.0.0.1:1/v1",
        "http://127.0.0.1/v1",
        "http://u:p@127.0.0.1:1/v1",
        "http://127.0.0.1:1/v1?x",
        "file:///etc/passwd",
        "",
    ],
)
def test_a_route_leads_to_this_machine_alone(url: str) -> None:
    """Any other URL is an error of the file."""
    with pytest.raises(ValueError, match=r"URL|machine"):
        routes_from_json(routes_to_json([Route("m", RouteState.READY, url)]))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "localhost", "[::1]"])
def test_addresses_of_this_machine(host: str) -> None:
    """Each loopback address will do."""
    assert Upstream.of(f"http://{host}:8080/v1/") == Upstream(host.strip("[]"), 8080, "/v1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format":2,"routes":[]}',
        '{"format":1,"routes":{}}',
        '{"format":1,"routes":[1]}',
        '{"format":1,"routes":[{"state":"starting"}]}',
        '{"format":1,"routes":[{"model":1}]}',
        '{"format":1,"routes":[{"model":"m","state":"odd"}]}',
        '{"format":1,"routes":[{"model":"m","state":"starting","slots":true}]}',
        '{"format":1,"routes":[{"model":"m","state":"starting","services":"default/a"}]}',
        '{"format":1,"routes":[{"model":"m","state":"starting","services":[1]}]}',
    ],
)
def test_a_file_that_is_no_table_of_routes_is_an_error(text: str) -> None:
    """It is one ValueError, whatever is wrong."""
    with pytest.raises(ValueError, match=r".+"):
        routes_from_json(text.encode())
