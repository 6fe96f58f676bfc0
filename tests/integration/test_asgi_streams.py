"""Answers that come in pieces, and the ways round `send`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import (
    FileResponse,
    Response,
    StreamingResponse,
)

from asgi_driver import Conversation, Reply, call
from asgi_shop import ALICE, Shop
from semel.core.model import Mode, Status
from semel.errors import ClaimClosedError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from starlette.requests import Request

    from semel.web.asgi_types import App, AsgiScope, Receive, Send


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


async def pay(app: App, **parts: Any) -> Reply:
    return await call(app, **{"key": "k", "headers": ALICE, **parts})


def answering(shop: Shop, answer: Callable[[], Response], **parts: Any) -> App:
    async def handler(_: Request) -> Response:
        await shop.pay()
        return answer()

    return shop.service(handler, **parts)


@pytest.mark.rule("O6", "R1")
async def test_a_stream_is_stored_whole(shop: Shop) -> None:
    async def lines() -> AsyncIterator[str]:
        for number in range(5):
            await asyncio.sleep(0)
            yield f"{number}\n"
        await shop.pay()

    async def handler(_: Request) -> Response:
        return StreamingResponse(lines(), 201, media_type="text/plain")

    app = shop.service(handler)
    first, again = await pay(app), await pay(app)
    assert first.body == again.body == b"0\n1\n2\n3\n4\n"
    assert again.replayed
    assert (shop.runs, shop.effects) == (1, 1)


@pytest.mark.rule("O4")
async def test_no_byte_is_sent_before_the_commit(shop: Shop) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        yield b"early"
        reached.set()
        await go_on.wait()

    async def handler(_: Request) -> Response:
        await shop.pay()
        return StreamingResponse(lines(), 201)

    talk = Conversation(shop.service(handler), key="k", headers=ALICE)
    task = talk.start()
    await reached.wait()
    assert not talk.sent
    assert shop.effects == 0
    go_on.set()
    assert (await task).body == b"early"
    assert shop.effects == 1


@pytest.mark.rule("O7", "W1")
async def test_an_event_stream_is_live(shop: Shop) -> None:
    go_on, closed = asyncio.Event(), []

    async def events() -> AsyncIterator[str]:
        yield "data: 1\n\n"
        await go_on.wait()
        try:
            _ = shop.guard.current().tx
        except ClaimClosedError:
            closed.append(True)
        yield "data: 2\n\n"

    async def handler(_: Request) -> Response:
        await shop.pay()
        shop.guard.current().after_commit(lambda: closed.append(False))
        return StreamingResponse(events(), media_type="text/event-stream")

    app = shop.service(handler)
    talk = Conversation(app, key="k", headers=ALICE)
    task = talk.start()
    await talk.until(lambda reply: reply.body)
    assert talk.reply.body == b"data: 1\n\n"
    assert (shop.effects, shop.claims) == (1, [Status.COMPLETED])
    again = await pay(app)
    assert (again.status, again.problem) == (409, "response-not-stored")
    assert not again.json()["retryable"]
    go_on.set()
    assert (await task).body == b"data: 1\n\ndata: 2\n\n"
    assert closed == [True, False]
    assert shop.runs == 1


@pytest.mark.rule("O7")
@pytest.mark.parametrize("declared", [True, False])
async def test_a_large_answer_is_not_stored_but_sent(shop: Shop, declared: bool) -> None:
    chunks = [bytes([number]) * 300_000 for number in range(4)]
    sizes: list[int] = []

    async def parts() -> AsyncIterator[bytes]:
        for chunk in chunks:
            sizes.append(shop.effects)
            yield chunk

    async def handler(_: Request) -> Response:
        await shop.pay()
        headers = {"content-length": "1200000"} if declared else {}
        return StreamingResponse(parts(), 200, headers)

    app = shop.service(handler)
    assert (await pay(app)).body == b"".join(chunks)
    assert sizes == ([1, 1, 1, 1] if declared else [0, 0, 0, 0])
    assert (await pay(app)).problem == "response-not-stored"
    assert (shop.runs, shop.effects) == (1, 1)


@pytest.mark.rule("O7")
async def test_the_limit_is_kept_to_the_byte() -> None:
    shop = Shop(max_response_bytes=10)
    app = answering(shop, lambda: Response(b"0123456789"))
    await pay(app)
    assert (await pay(app)).replayed
    app = answering(shop, lambda: Response(b"0123456789a"))
    await pay(app, key="other")
    assert (await pay(app, key="other")).problem == "response-not-stored"


@pytest.mark.rule("O6", "O7")
@pytest.mark.parametrize("size", [10, 100_000, 2_000_000])
async def test_a_file(shop: Shop, tmp_path: Path, size: int) -> None:
    path = tmp_path / "receipt.bin"
    path.write_bytes(b"x" * size)
    app = answering(shop, lambda: FileResponse(path))
    first, again = await pay(app), await pay(app)
    assert (first.status, len(first.body)) == (200, size)
    if size < 1 << 20:
        assert (again.body, again.get("etag"), again.replayed) == (
            first.body,
            first.get("etag"),
            True,
        )
    else:
        assert again.problem == "response-not-stored"
    assert shop.runs == 1


@pytest.mark.rule("W1")
async def test_a_guarded_scope_offers_no_way_round_send(shop: Shop) -> None:
    scopes: list[AsgiScope] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        scope["route"] = "/payments"
        await Response(b"1")(scope, receive, send)

    talk = Conversation(shop.guarded(app), key="k", headers=ALICE)
    await talk.run()
    (inner,) = scopes
    assert inner["extensions"] == {"http.response.early_hint": {}}
    assert inner["semel"].claim.closed
    assert "http.response.pathsend" in talk.scope["extensions"]
    assert "semel" not in talk.scope
    assert talk.scope["route"] == "/payments", "outer middleware looks for the route there"


@pytest.mark.rule("W1", "O6")
async def test_a_file_sent_round_send_is_refused(shop: Shop) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.pathsend", "path": "/etc/hostname"})

    talk = Conversation(shop.guarded(app), key="k", headers=ALICE)
    with pytest.raises(UsageError, match="pathsend"):
        await talk.run()
    assert not talk.sent
    assert shop.untouched


@pytest.mark.rule("W1")
@pytest.mark.parametrize("kind", ["text/plain", "text/event-stream"])
async def test_interim_answers_pass_and_trailers_do_not(shop: Shop, kind: str) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.early_hint", "links": [b"</a>"]})
        await send({"type": "http.response.debug", "info": {}})
        headers = [(b"content-type", kind.encode())]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        await send({**start, "trailers": True})
        await send({"type": "http.response.body", "body": b"1"})
        await send({"type": "http.response.trailers", "headers": [(b"a", b"b")]})

    talk = Conversation(shop.guarded(app), key="k", headers=ALICE)
    reply = await talk.run()
    assert (reply.body, reply.complete) == (b"1", True)
    assert [message["type"] for message in talk.sent][:2] == [
        "http.response.early_hint",
        "http.response.debug",
    ]
