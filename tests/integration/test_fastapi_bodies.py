"""Whoever reads the body first: all of it is in the fingerprint, and it has a limit (F7, W1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from fastapi import (
    Depends,
    Form,
    Request,
    Response,
)
from fastapi.responses import StreamingResponse

from asgi_driver import Conversation, call
from asgi_shop import ALICE, Shop
from fastapi_app import (
    Payment,
    SoldOutError,
    guarded_router,
    one_route,
    service,
)
from semel.core.model import Mode


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


@pytest.mark.rule("W1", "F7")
@pytest.mark.parametrize("chunks", [[b"one ", b"two"], [b"", b"one two"], [b"x" * 70_000, b"y"]])
async def test_a_body_that_only_the_endpoint_reads(shop: Shop, chunks: list[bytes]) -> None:
    async def pay(request: Request) -> int:
        await shop.pay()
        return len([piece async for piece in request.stream() if piece])

    app = one_route(shop, pay)
    first = await call(app, key="k", headers=ALICE, body=chunks)
    again = await call(app, key="k", headers=ALICE, body=[b"".join(chunks)])
    other = await call(app, key="k", headers=ALICE, body=b"else")
    assert (first.status, again.replayed, other.problem) == (200, True, "key-reused")
    assert shop.runs == 1


@pytest.mark.rule("W1", "F1")
async def test_a_body_that_a_dependency_began_to_read(shop: Shop) -> None:
    """What it took is in the fingerprint, what it left reaches the endpoint."""

    async def peek(request: Request) -> bytes:
        message = await request.receive()
        assert message["more_body"]
        piece: bytes = message["body"]
        return piece

    async def pay(request: Request, first: bytes = Depends(peek)) -> str:
        await shop.pay()
        rest = b"".join([piece async for piece in request.stream()])
        return (first + b"|" + rest).decode()

    app = one_route(shop, pay)
    reply = await call(app, key="k", headers=ALICE, body=[b"one ", b"two ", b"three"])
    assert reply.json() == "one |two three"
    assert (await call(app, key="k", headers=ALICE, body=[b"one t", b"wo three"])).replayed
    other = await call(app, key="k", headers=ALICE, body=[b"two ", b"two ", b"three"])
    assert other.problem == "key-reused"


@pytest.mark.rule("F3")
async def test_forms(shop: Shop) -> None:
    async def pay(amount: Annotated[int, Form()]) -> int:
        await shop.pay()
        return amount

    app = one_route(shop, pay)
    urlencoded = {**ALICE, "content-type": "application/x-www-form-urlencoded"}
    for replayed in (False, True):
        reply = await call(app, key="k", headers=urlencoded, body=b"amount=5")
        assert (reply.json(), reply.replayed) == (5, replayed)
    for number, replayed in enumerate((False, True)):
        line = f"--line{number}"
        body = f'{line}\r\nContent-Disposition: form-data; name="amount"\r\n\r\n6\r\n{line}--\r\n'
        headers = {**ALICE, "content-type": f"multipart/form-data; boundary=line{number}"}
        reply = await call(app, key="m", headers=headers, body=body.encode())
        assert (reply.json(), reply.replayed) == (6, replayed)


@pytest.mark.rule("F7")
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_that_is_too_large(shop: Shop, typed: bool, declared: bool) -> None:
    async def pay(payment: Payment) -> int:
        shop.runs += 1
        return payment.amount

    async def pay_raw(request: Request) -> int:
        shop.runs += 1
        return len(await request.body())

    shop.guard = shop.guard.with_options(max_request_bytes=100)
    app = one_route(shop, pay if typed else pay_raw)
    body = b'{"amount": 5, "more": "' + b"x" * 100 + b'"}'
    headers = ALICE if declared else {**ALICE, "transfer-encoding": "chunked"}
    reply = await call(app, key="k", headers=headers, body=[body[:90], body[90:]])
    assert (reply.status, reply.problem) == (413, "body-too-large")
    assert (shop.runs, shop.untouched, shop.told) == (0, True, ["refused"])
    fitting = b'{"amount": 5, "more": "' + b"x" * 75 + b'"}'
    assert (await call(app, key="k", headers=ALICE, body=fitting)).status == 200


@pytest.mark.rule("F7", "W1")
async def test_a_body_that_grows_too_large_after_a_refusal(shop: Shop) -> None:
    """Somebody answers without the body, and reads on: the answer is theirs."""

    async def refuse(request: Request, _: Exception) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"no"
            async for piece in request.stream():
                yield piece

        return StreamingResponse(pieces(), 403)

    async def gate() -> None:
        raise SoldOutError

    shop.guard = shop.guard.with_options(max_request_bytes=10)
    app = one_route(shop, shop.pay, dependencies=[Depends(gate)])
    app.add_exception_handler(SoldOutError, refuse)
    headers = {**ALICE, "transfer-encoding": "chunked"}
    modern = {"asgi": {"version": "3.0", "spec_version": "2.4"}}
    talk = Conversation(app, key="k", headers=headers, body=[b"x" * 6, b"x" * 6], scope=modern)
    reply = await talk.run()
    assert (reply.status, reply.body, reply.complete) == (403, b"no" + b"x" * 6, False)
    assert shop.untouched


@pytest.mark.rule("F7")
async def test_the_limit_of_fastapi_itself(shop: Shop) -> None:
    async def pay(request: Request) -> int:
        shop.runs += 1
        return len(await request.body())

    app = one_route(shop, pay, max_body_size=10)
    reply = await call(app, key="k", headers=ALICE, body=b"x" * 11)
    assert (reply.status, reply.problem) == (413, "")
    assert (await call(app, key="l", headers=ALICE, body=b"x" * 10)).json() == 10


@pytest.mark.rule("W1", "O5")
async def test_a_client_that_leaves_before_its_body_is_there(shop: Shop) -> None:
    api = guarded_router(shop.guard)
    asked = asyncio.Event()

    async def slow(request: Request) -> None:
        await request.receive()
        asked.set()
        await talk.until(lambda _: talk.left.is_set())

    @api.post("/payments", dependencies=[Depends(slow)])
    async def pay() -> None:
        await shop.pay()

    talk = Conversation(service(api), key="k", headers=ALICE, body=[b"1", b"2"])
    task = talk.start()
    await asked.wait()
    talk.left.set()
    async with talk._changed:
        talk._changed.notify_all()
    assert (await task).status == 0
    assert (shop.runs, shop.untouched) == (0, True)
