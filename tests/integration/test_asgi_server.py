"""The middleware under a real server, spoken to over real sockets."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
import uvicorn
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, Response, StreamingResponse

from asgi_shop import ALICE, Shop
from semel.core.model import Mode, Status
from semel.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from semel.web.asgi_types import App, AsgiScope, Receive, Send

HEAD = b"POST /payments HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer alice\r\n"


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


@pytest.fixture(params=["h11", "httptools"])
def http(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@asynccontextmanager
async def serving(app: App, http: str = "h11") -> AsyncIterator[int]:
    """Run a server on a free port, and stop it when all its requests have ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, http=http, ws="none", log_level="critical", loop="asyncio")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


def request(key: bytes | None = b"k", body: bytes = b"{}", more: bytes = b"") -> bytes:
    head = HEAD + b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    if key is not None:
        head += b"Idempotency-Key: " + key + b"\r\n"
    return head + more + b"\r\n" + body


async def speak(port: int, raw: bytes) -> tuple[int, bytes]:
    """Send bytes; return status and everything that came until the server closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ", 2)[1]) if answer else 0, answer


CLOSE = b"Connection: close\r\n"


@pytest.mark.rule("R1", "A1")
async def test_the_story_over_http(shop: Shop, http: str) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def handler(_: Request) -> Response:
        await shop.pay()
        entered.set()
        await go_on.wait()
        response = JSONResponse({"payment": 1}, 201, {"Location": "/payments/1"})
        response.set_cookie("session", "secret")
        return response

    async with (
        serving(shop.service(handler), http) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=ALICE) as client,
    ):
        keyed = {"Idempotency-Key": '"k"'}
        first = asyncio.create_task(client.post("/payments", json={"a": 1, "b": 2}, headers=keyed))
        await entered.wait()
        busy = await client.post("/payments", json={"a": 1, "b": 2}, headers=keyed)
        go_on.set()
        done = await first
        again = await client.post("/payments", content=b'{"b":2.0,"a":1}', headers=keyed)
        typed = {**keyed, "content-type": "application/json"}
        again = await client.post("/payments", content=b'{"b":2.0,"a":1}', headers=typed)
        other = await client.post("/payments", json={"a": 2}, headers=keyed)
    assert [r.status_code for r in (done, busy, again, other)] == [201, 409, 201, 422]
    assert again.content == done.content
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == "/payments/1"
    assert "set-cookie" in done.headers
    assert "set-cookie" not in again.headers
    assert (shop.runs, shop.effects) == (1, 1)


WIRE_KEYS = {
    "two lines": b"Idempotency-Key: a\r\nIdempotency-Key: a\r\n",
    "joined": b"Idempotency-Key: a, b\r\n",
    "blank": b"Idempotency-Key: \r\n",
    "half quoted": b'Idempotency-Key: "a\r\n',
    "256": b"Idempotency-Key: " + b"k" * 256 + b"\r\n",
    "non-ascii": b"Idempotency-Key: \xc3\xbc\r\n",
    "tab": b"Idempotency-Key: a\tb\r\n",
    "missing": b"",
}


@pytest.mark.rule("K2")
@pytest.mark.parametrize("lines", WIRE_KEYS.values(), ids=WIRE_KEYS)
async def test_bad_keys_on_the_wire(http: str, lines: bytes) -> None:
    shop = Shop()

    async def handler(_: Request) -> Response:
        await shop.pay()
        return Response()

    async with serving(shop.service(handler), http) as port:
        status, answer = await speak(port, request(key=None, more=lines + CLOSE))
    assert status == 400
    assert b"urn:semel:problem:key-" in answer
    assert (shop.runs, shop.untouched) == (0, True)


@pytest.mark.rule("F7")
async def test_a_large_body_is_refused_before_it_is_sent(http: str) -> None:
    """A client that asks first is not even told to go on."""
    shop = Shop()

    async def handler(_: Request) -> Response:
        await shop.pay()
        return Response()

    asks = b"Content-Length: 2097152\r\nIdempotency-Key: k\r\nExpect: 100-continue\r\n"
    async with serving(shop.service(handler), http) as port:
        status, answer = await speak(port, HEAD + asks + CLOSE + b"\r\n")
    assert status == 413
    assert b"100 Continue" not in answer
    assert b"body-too-large" in answer
    assert (shop.runs, shop.untouched) == (0, True)


@pytest.mark.rule("F7", "W1")
@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 500_000])
async def test_a_body_reaches_the_handler_as_it_was_sent(http: str, size: int) -> None:
    shop = Shop()
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    pieces: list[int] = []

    async def handler(request: Request) -> Response:
        await shop.pay()
        got = [piece async for piece in request.stream()]
        pieces.extend(map(len, got))
        assert not await request.is_disconnected()
        return Response(b"".join(got) or b"nothing")

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, size, 10_000):
            yield body[start : start + 10_000]

    async with (
        serving(shop.service(handler), http) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=ALICE) as client,
    ):
        keyed = {"Idempotency-Key": "k"}
        first = await client.post("/payments", content=chunks(), headers=keyed)
        again = await client.post("/payments", content=body, headers=keyed)
    assert first.content == again.content == (body or b"nothing")
    assert again.headers["idempotent-replayed"] == "true"
    assert max(pieces) <= 65_536
    assert shop.runs == 1


@pytest.mark.rule("O5")
async def test_a_client_that_hangs_up_before_its_body_is_sent(http: str) -> None:
    shop = Shop()

    async def handler(_: Request) -> Response:
        await shop.pay()
        return Response()

    ended = asyncio.Event()
    service = shop.service(handler)

    async def watched(scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            await service(scope, receive, send)
        finally:
            if scope["type"] == "http":
                ended.set()

    async with serving(watched, http) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(body=b"x" * 100)[:-50])
        await writer.drain()
        writer.close()
        await ended.wait()
    assert (shop.runs, shop.untouched) == (0, True)


@pytest.mark.rule("O5", "W1")
async def test_a_client_that_hangs_up_while_the_handler_works(shop: Shop, http: str) -> None:
    entered, done = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        await shop.pay()
        await request.body()
        assert not await request.is_disconnected()
        entered.set()
        message = await request.receive()
        assert message["type"] == "http.disconnect"
        return JSONResponse({"payment": 1}, 201, background=BackgroundTask(done.set))

    async with serving(shop.service(handler), http) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request())
        await entered.wait()
        writer.close()
        await done.wait()
        status, answer = await speak(port, request(more=CLOSE))
    assert (status, shop.runs, shop.effects) == (201, 1, 1)
    assert b"idempotent-replayed: true" in answer


@pytest.mark.rule("O5", "O6")
async def test_a_client_that_hangs_up_while_the_answer_streams(shop: Shop, http: str) -> None:
    streaming, never, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    shop.guard.on_event = lambda event: ended.set() if event.name == "released" else None

    async def lines() -> AsyncIterator[bytes]:
        yield b"half"
        streaming.set()
        if shop.runs == 1:
            await never.wait()

    async def handler(_: Request) -> Response:
        await shop.pay()
        return StreamingResponse(lines(), 201)

    async with serving(shop.service(handler), http) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request())
        await streaming.wait()
        writer.close()
        await ended.wait()
        assert shop.untouched
        status, answer = await speak(port, request(more=CLOSE))
    assert (status, shop.runs, shop.effects) == (201, 2, 1)
    assert b"idempotent-replayed" not in answer


@pytest.mark.rule("O7", "W1")
async def test_the_first_event_arrives_while_the_next_is_awaited(shop: Shop, http: str) -> None:
    go_on = asyncio.Event()

    async def events() -> AsyncIterator[str]:
        yield "data: 1\n\n"
        await go_on.wait()
        yield "data: 2\n\n"

    async def handler(_: Request) -> Response:
        await shop.pay()
        return StreamingResponse(events(), media_type="text/event-stream")

    async with (
        serving(shop.service(handler), http) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=ALICE) as client,
    ):
        keyed = {"Idempotency-Key": "k"}
        async with client.stream("POST", "/payments", headers=keyed) as response:
            pieces = response.aiter_text()
            assert await anext(pieces) == "data: 1\n\n"
            assert shop.claims == [Status.COMPLETED]
            again = await client.post("/payments", headers=keyed)
            assert (again.status_code, again.json()["title"]) == (
                409,
                "The answer is no longer available",
            )
            go_on.set()
            assert await anext(pieces) == "data: 2\n\n"
    assert (shop.runs, shop.effects) == (1, 1)


@pytest.mark.rule("O4")
async def test_a_failed_commit_leaves_the_connection_usable(shop: Shop, http: str) -> None:
    async def handler(_: Request) -> Response:
        await shop.pay()
        return JSONResponse({}, 201)

    shop.trouble["claim_complete"] = StoreUnavailableError("gone")
    async with serving(shop.service(handler), http) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request())
        assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = [int(line[16:]) for line in head.lower().split(b"\r\n") if b"t-length:" in line]
        await reader.readexactly(length)
        shop.trouble.clear()
        writer.write(request(more=CLOSE))
        assert (await reader.read()).startswith(b"HTTP/1.1 201 ")
        writer.close()
        await writer.wait_closed()
    assert (shop.runs, shop.effects) == (2, 1)


@pytest.mark.rule("O5", "O6")
async def test_the_server_sees_an_answer_that_was_not_finished(http: str) -> None:
    shop = Shop()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        del receive
        if scope["type"] == "http":
            await shop.pay()
            headers = [(b"content-length", b"10")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})

    async with serving(shop.guarded(app), http) as port:
        status, answer = await speak(port, request())
    assert (status, answer.endswith(b"half")) == (200, True)
    assert shop.untouched
