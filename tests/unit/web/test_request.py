"""What the application's functions see of a request."""

from __future__ import annotations

import pytest

from semel.web.body import RequestBody
from semel.web.request import Headers, Request

RAW = (
    (b"Accept", b"a"),
    (b"accept", b"b"),
    (b"Cookie", b"c=1"),
    (b"cookie", b"d=2"),
    (b"x-name", b"sch\xfc"),
)


@pytest.mark.rule("R2")
def test_headers_are_read_without_case_and_hide_nothing() -> None:
    headers = Headers(RAW)
    assert headers["ACCEPT"] == "a, b"
    assert headers.get("cookie") == "c=1; d=2"
    assert headers.get_all("accept") == ["a", "b"]
    assert headers["X-Name"] == "schü"
    assert list(headers) == ["accept", "cookie", "x-name"]
    assert len(headers) == 3
    assert "Cookie" in headers
    assert "none" not in headers
    assert 7 not in headers
    assert headers.get("ключ", "default") == "default"
    with pytest.raises(KeyError, match="none"):
        _ = headers["none"]


@pytest.mark.rule("K4")
async def test_a_request_shows_what_it_is() -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"{}"}

    scope = {
        "type": "http",
        "method": "post",
        "path": "/pay/ü",
        "query_string": b"a=1",
        "headers": [(bytearray(b"host"), b"shop")],
        "user": "alice",
    }
    request = Request(scope, RequestBody(receive, 10))
    assert (request.method, request.path, request.query) == ("POST", "/pay/ü", b"a=1")
    assert request.route == "POST /pay/ü"
    assert request.headers["host"] == "shop"
    assert request.scope["user"] == "alice"
    assert await request.body() == b"{}"
    del scope["query_string"]
    assert request.query == b""
