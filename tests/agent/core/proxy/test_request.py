"""Which model a body names, and which headers and paths go on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.proxy.refusal import RefusalError
from journeyman.core.proxy.request import Body, Target, is_allowed, to_client, to_server

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    fields=st.dictionaries(st.text().filter(lambda name: name != "model"), VALUES, max_size=4),
    place=st.integers(0, 4),
    model=st.text(min_size=1),
    indent=st.none() | st.integers(0, 2),
    escaped=st.booleans(),
)
def test_pinning_changes_the_model_and_no_other_byte(
    fields: dict[str, object], place: int, model: str, indent: int | None, *, escaped: bool
) -> None:
    """Whatever stands around it, only the value of `model` is replaced."""
    items = [*fields.items()]
    items.insert(min(place, len(items)), ("model", model))
    try:
        data = json.dumps(dict(items), indent=indent, ensure_ascii=escaped).encode()
    except UnicodeEncodeError:
        return
    body = Body.of(data)
    assert body.model == model
    assert body.pinned(model) == data
    pinned = body.pinned("other")
    assert json.loads(pinned) == {**dict(items), "model": "other"}
    assert pinned.replace(b'"other"', b"", 1).startswith(data[: body.start].strip()[:1])
    text, changed = data.decode(), pinned.decode()
    assert changed == text[: body.start] + '"other"' + text[body.end :]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "bad_json"),
        (b"null", "bad_json"),
        (b"[]", "bad_json"),
        (b"{", "bad_json"),
        (b'{"model":"a"', "bad_json"),
        (b'{"model":"a"} x', "bad_json"),
        (b'{"model":"a",}', "bad_json"),
        (b'{"model" "a"}', "bad_json"),
        (b'{model:"a"}', "bad_json"),
        (b'\xff{"model":"a"}', "bad_json"),
        (b'{"a":' + b"[" * 100_000, "bad_json"),
        (b"{}", "bad_model"),
        (b'{"model":1}', "bad_model"),
        (b'{"model":""}', "bad_model"),
        (b'{"inner":{"model":"a"}}', "bad_model"),
        (b'{"model":"a","model":"b"}', "bad_model"),
        (b'{"model":"a","mod\\u0065l":"b"}', "bad_model"),
    ],
)
def test_a_body_without_exactly_one_model_is_refused(body: bytes, code: str) -> None:
    """What two parsers could read in two ways is not passed on."""
    with pytest.raises(RefusalError) as refused:
        Body.of(body)
    assert (refused.value.status, refused.value.code) == (400, code)


@pytest.mark.parametrize(
    "target",
    [
        b"http://169.254.169.254/latest/meta-data",
        b"//evil/v1/chat/completions",
        b"/v1/../slots",
        b"/v1/%2e%2e/slots",
        b"/v1/.hidden",
        b"/v1/a b",
        b"evil:80",
        b"*",
        b"/",
        b"/v1/\xff",
    ],
)
def test_a_target_that_leads_elsewhere_is_refused(target: bytes) -> None:
    """No request chooses a host or climbs out of the API."""
    with pytest.raises(RefusalError):
        Target.of(target)


def test_a_path_is_put_below_the_servers_prefix() -> None:
    """The query goes on as it is."""
    assert (
        Target.of(b"/v1/chat/completions?a=%20b&c").below("/api/v1") == b"/api/v1/chat/completions?a=%20b&c"
    )


def test_headers_between_neighbours_go_no_further() -> None:
    """What RFC 9110 calls hop-by-hop, what Connection names, and the client's key stay here."""
    told = [
        (b"host", b"proxy"),
        (b"connection", b"keep-alive, X-Private"),
        (b"x-private", b"1"),
        (b"keep-alive", b"timeout=5"),
        (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"proxy-authorization", b"Basic x"),
        (b"authorization", b"Bearer of-the-proxy"),
        (b"x-api-key", b"of-the-proxy"),
        (b"expect", b"100-continue"),
        (b"accept-encoding", b"gzip"),
        (b"x-request-id", b"7"),
    ]
    assert to_server(told, host="127.0.0.1:1", key=b"of-the-server", length=3) == [
        (b"x-request-id", b"7"),
        (b"host", b"127.0.0.1:1"),
        (b"content-length", b"3"),
        (b"connection", b"close"),
        (b"authorization", b"Bearer of-the-server"),
    ]
    back = [(b"connection", b"close, x-hop"), (b"x-hop", b"1"), (b"content-length", b"3"), (b"server", b"s")]
    assert to_client(back) == [(b"content-length", b"3"), (b"server", b"s")]


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ([(b"authorization", b"Bearer k")], True),
        ([(b"authorization", b"bearer  k ")], True),
        ([(b"x-api-key", b"k")], True),
        ([(b"authorization", b"Basic k")], False),
        ([(b"authorization", b"Bearer kk")], False),
        ([(b"authorization", b"Bearer ")], False),
        ([], False),
    ],
)
def test_the_key_is_shown_in_one_of_two_ways(headers: list[tuple[bytes, bytes]], *, allowed: bool) -> None:
    """As a bearer token or as `x-api-key`, and whole."""
    assert is_allowed(headers, b"k") is allowed
