"""An exchange whose claim is made by the route, after the framework's own authentication."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from asgi_driver import Conversation, call
from asgi_shop import Shop
from semel.core.model import Mode
from semel.web.body import RequestBody
from semel.web.exchange import Exchange
from semel.web.request import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semel.web.asgi_types import App, AsgiScope, Receive, Send


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


def around(shop: Shop, app: App) -> App:
    """Make what an integration makes: an exchange round the route, begun by the route."""

    async def shell(scope: AsgiScope, receive: Receive, send: Send) -> None:
        with RequestBody(receive, 1000) as body:
            exchange = Exchange(shop.guard, Request(scope, body), body, send)
            await exchange.run(app, scope)

    return shell


def route(shop: Shop, owner: object = "alice") -> App:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["semel"]
        if "authorization" not in exchange.request.headers:
            await PlainTextResponse("who are you?", 401)(scope, receive, send)
            return
        given: Any = owner
        answer = await exchange.begin(given, "key")
        if answer is not None:
            await exchange.answer(answer)
            return
        await shop.pay()
        await JSONResponse({}, 201)(scope, receive, send)

    return app


@pytest.mark.rule("R2")
async def test_authentication_comes_before_the_replay(shop: Shop) -> None:
    app = around(shop, route(shop))
    known = {"authorization": "Bearer alice"}
    assert (await call(app)).status == 401
    assert shop.untouched
    assert (await call(app, headers=known)).status == 201
    assert (await call(app)).status == 401
    assert (await call(app, headers=known)).replayed
    assert (await call(app, headers=known, body=b"[]")).problem == "key-reused"
    assert (shop.runs, shop.effects) == (1, 1)


@pytest.mark.rule("K4")
@pytest.mark.parametrize("owner", ["", None, (), 7, ("a", None)])
async def test_an_owner_that_is_none(owner: object) -> None:
    shop = Shop()
    reply = await call(around(shop, route(shop, owner)), headers={"authorization": "x"})
    assert (reply.status, reply.problem) == (400, "scope-missing")
    assert shop.untouched


@pytest.mark.rule("O5", "O6")
async def test_a_client_that_left_before_the_claim_was_made(shop: Shop) -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield b"1"
        await asyncio.sleep(0)
        yield b"2"

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await scope["semel"].request.body()
        await receive()
        talk.left.set()
        assert (await receive())["type"] == "http.disconnect"
        assert await scope["semel"].begin("alice", "key") is None
        await shop.pay()
        await StreamingResponse(lines())(scope, receive, send)

    talk = Conversation(around(shop, app))
    await talk.run()
    assert (shop.runs, shop.untouched) == (1, True)


@pytest.mark.rule("O6")
async def test_two_messages_at_once_are_an_error(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = asyncio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["semel"]
        await exchange.begin("alice", "key")
        assert exchange.claim is not None
        complete = exchange.claim.complete

        async def slow(answer: Any) -> None:
            await pause.wait()
            await complete(answer)

        monkeypatch.setattr(exchange.claim, "complete", slow)
        first = asyncio.create_task(Response(b"1")(scope, receive, send))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="at once"):
            await send({"type": "http.response.body", "body": b"2"})
        pause.set()
        await first

    reply = await call(around(shop, app))
    assert (reply.body, reply.complete) == (b"1", True)
