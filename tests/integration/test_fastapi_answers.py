"""Every way in which a route of FastAPI's answers: settled first, sent second (O1, O2, O4, O6).

Exceptions and their handlers, tasks, streams, events, files, and bodies that somebody
else reads first; in memory, message by message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from fastapi import (
    BackgroundTasks,
    Depends,
    FastAPI,
    Form,
    HTTPException,
    Request,
    Response,
    WebSocket,
)
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, StreamingResponse
from fastapi.sse import EventSourceResponse
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

import semel
from asgi_driver import Conversation, call
from asgi_shop import ALICE, Shop
from fastapi_app import Payment, guarded_router, service
from semel.core.model import Mode
from semel.errors import ClaimClosedError, StoreUnavailableError

if TYPE_CHECKING:
    from semel.web.asgi_types import App

DOWN = StoreUnavailableError("the database is gone")


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


def one_route(shop: Shop, endpoint: Any, **settings: Any) -> FastAPI:
    api = guarded_router(shop.guard)
    api.post("/payments", **settings)(endpoint)
    return service(api)


class SoldOutError(Exception):
    """Something of the application's own."""


# Exceptions.


@pytest.mark.rule("O1", "O2")
@pytest.mark.parametrize(
    ("status", "stored"), [(402, True), (404, True), (409, False), (503, False)]
)
async def test_an_http_exception_is_the_handlers_answer(
    shop: Shop, status: int, stored: bool
) -> None:
    async def pay() -> None:
        await shop.pay()
        raise HTTPException(status, "no", {"X-Why": "so"})

    app = one_route(shop, pay)
    first = await call(app, key="k", headers=ALICE)
    again = await call(app, key="k", headers=ALICE)
    assert (first.status, first.json(), first.get("x-why")) == (status, {"detail": "no"}, "so")
    assert (again.status, again.body, again.replayed) == (status, first.body, stored)
    assert (shop.runs, shop.effects) == (1 if stored else 2, 0)


@pytest.mark.rule("O1", "O2")
@pytest.mark.parametrize(
    ("status", "stored"), [(402, True), (201, True), (409, False), (500, False)]
)
@pytest.mark.parametrize("blocking", [True, False])
async def test_an_exception_handler_gives_the_handlers_answer(
    shop: Shop, status: int, stored: bool, blocking: bool
) -> None:
    async def pay() -> None:
        await shop.pay()
        raise SoldOutError

    def answer(_: Request, __: Exception) -> Response:
        return JSONResponse("sold out", status)

    async def answer_later(request: Request, error: Exception) -> Response:
        return answer(request, error)

    app = one_route(shop, pay)
    app.add_exception_handler(SoldOutError, answer if blocking else answer_later)
    replies = [await call(app, key="k", headers=ALICE) for _ in range(2)]
    assert [reply.status for reply in replies] == [status, status]
    assert [reply.replayed for reply in replies] == [False, stored]
    assert shop.runs == (1 if stored else 2)
    assert shop.effects == (1 if status < 400 else 0)


@pytest.mark.rule("O2", "O6")
@pytest.mark.parametrize("handled", [True, False])
async def test_what_only_the_outermost_handler_catches_gives_the_key_back(
    shop: Shop, handled: bool
) -> None:
    async def pay() -> int:
        await shop.pay()
        if shop.runs == 1:
            raise SoldOutError
        return shop.runs

    app = one_route(shop, pay)
    if handled:
        app.add_exception_handler(Exception, lambda _, __: JSONResponse("oh", 409))
    talk = Conversation(app, key="k", headers=ALICE)
    with pytest.raises(SoldOutError):  # so that a server can log it
        await talk.run()
    assert talk.reply.status == (409 if handled else 500)
    assert shop.untouched
    assert (await call(app, key="k", headers=ALICE)).json() == 2


@pytest.mark.rule("O2", "O6")
async def test_an_invalid_response_gives_the_key_back(shop: Shop) -> None:
    async def pay() -> Any:
        await shop.pay()
        return {"amount": "much"}

    app = one_route(shop, pay, response_model=Payment)
    talk = Conversation(app, key="k", headers=ALICE)
    with pytest.raises(Exception, match="amount"):
        await talk.run()
    assert (talk.reply.status, shop.untouched) == (500, True)


@pytest.mark.rule("O1")
async def test_redirects_with_a_slash_are_not_stored(shop: Shop) -> None:
    app = one_route(shop, shop.pay)
    moved = await call(app, target="/payments/", key="k", headers=ALICE)
    assert (moved.status, shop.runs, shop.untouched) == (307, 0, True)
    assert (await call(app, key="k", headers=ALICE)).status == 200


@pytest.mark.rule("O1")
async def test_a_redirect_of_the_endpoint(shop: Shop) -> None:
    async def pay() -> Response:
        await shop.pay()
        return RedirectResponse("/payments/1", 303)

    app = one_route(shop, pay)
    for replayed in (False, True):
        reply = await call(app, key="k", headers=ALICE)
        assert (reply.status, reply.get("location")) == (303, "/payments/1")
        assert reply.replayed is replayed


# Settled first, sent second.


@pytest.mark.rule("O4")
async def test_tasks_run_once_and_after_the_commit(shop: Shop) -> None:
    done: list[tuple[int, bool]] = []

    async def pay(tasks: BackgroundTasks) -> None:
        await shop.pay()
        claim = shop.guard.current()
        tasks.add_task(lambda: done.append((shop.effects, claim.closed)))
        claim.after_commit(lambda: done.append((shop.effects, claim.closed)))

    app = one_route(shop, pay)
    for _ in range(2):
        assert (await call(app, key="k", headers=ALICE)).status == 200
    assert done == [(1, True), (1, True)]


@pytest.mark.rule("O4")
async def test_no_task_runs_where_the_commit_fails(shop: Shop) -> None:
    done: list[int] = []
    ended: list[str] = []

    async def dependency() -> AsyncIterator[None]:
        try:
            yield
        finally:
            ended.append("dependency")

    async def pay(tasks: BackgroundTasks) -> None:
        await shop.pay()
        tasks.add_task(done.append, 1)
        shop.trouble["claim_complete"] = DOWN

    app = one_route(shop, pay, dependencies=[Depends(dependency)])
    reply = await call(app, key="k", headers=ALICE)
    assert (reply.status, reply.problem, reply.get("retry-after")) == (
        503,
        "store-unavailable",
        "1",
    )
    assert (done, ended, shop.effects) == ([], ["dependency"], 0)


@pytest.mark.rule("O4", "O6")
async def test_dependencies_end_as_fastapi_has_it(shop: Shop) -> None:
    """With scope "function" before the answer is settled, else after it was sent."""
    seen: list[tuple[str, bool | None]] = []

    def ending(name: str) -> Any:
        async def dependency() -> AsyncIterator[None]:
            yield
            claim = semel.current()
            seen.append((name, None if claim is None else claim.closed))

        return dependency

    app = one_route(
        shop,
        shop.pay,
        dependencies=[
            Depends(ending("function"), scope="function"),
            Depends(ending("request"), scope="request"),
        ],
    )
    await call(app, key="k", headers=ALICE)
    assert seen == [("function", False), ("request", True)]
    seen.clear()
    assert (await call(app, key="k", headers=ALICE)).replayed
    assert seen == [("function", None), ("request", None)]


@pytest.mark.rule("O2", "O4")
async def test_a_dependency_that_fails_at_its_end(shop: Shop) -> None:
    """Before the answer it makes another one; after it, what was sent is true."""

    async def strict() -> AsyncIterator[None]:
        yield
        raise HTTPException(402, "not enough")

    before = one_route(shop, shop.pay, dependencies=[Depends(strict, scope="function")])
    reply = await call(before, key="k", headers=ALICE)
    assert (reply.status, shop.effects) == (402, 0)
    after = one_route(shop, shop.pay, dependencies=[Depends(strict)])
    talk = Conversation(after, key="other", headers=ALICE)
    with pytest.raises(RuntimeError, match="response already started"):
        await talk.run()
    assert (talk.reply.status, shop.effects) == (200, 1)
    assert (await call(one_route(shop, shop.pay), key="other", headers=ALICE)).replayed


# Streams.


@pytest.mark.rule("O6", "R1")
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_generator_is_held_back_and_replayed(shop: Shop, blocking: bool) -> None:
    pieces: list[Any] = []

    async def pay(payment: Payment) -> AsyncIterator[dict[str, int]]:
        assert semel.current() is not None
        await shop.pay()
        for number in range(payment.amount):
            pieces.append(semel.current())
            yield {"n": number}

    def pay_blocking(payment: Payment) -> Iterator[dict[str, int]]:
        shop.runs += 1
        for number in range(payment.amount):
            pieces.append(semel.current())
            yield {"n": number}

    app = one_route(shop, pay_blocking if blocking else pay)
    for replayed in (False, True):
        reply = await call(app, key="k", headers=ALICE, body=b'{"amount": 2}')
        assert (reply.status, reply.body) == (200, b'{"n":0}\n{"n":1}\n')
        assert reply.replayed is replayed
    invalid = await call(app, key="k", headers=ALICE, body=b"{}")
    assert invalid.status == 422
    assert (shop.runs, len(pieces), None in pieces) == (1, 2, False)


@pytest.mark.rule("O7", "W2")
@pytest.mark.parametrize("blocking", [True, False])
async def test_events_begin_with_what_the_claim_protects(shop: Shop, blocking: bool) -> None:
    """What runs before the first event is settled with the claim; what runs after it is not."""
    seen: list[bool] = []

    async def pay() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        yield {"n": 1}
        claim = shop.guard.current()
        seen.append(claim.closed)
        with pytest.raises(ClaimClosedError):
            _ = claim.tx
        yield {"n": 2}

    def pay_blocking() -> Iterator[dict[str, int]]:
        shop.runs += 1
        claim = shop.guard.current()
        assert not claim.closed
        yield {"n": 1}
        seen.append(claim.closed)
        yield {"n": 2}

    app = one_route(shop, pay_blocking if blocking else pay, response_class=EventSourceResponse)
    first = await call(app, key="k", headers=ALICE)
    assert first.body == b'data: {"n":1}\n\ndata: {"n":2}\n\n'
    assert (await call(app, key="k", headers=ALICE)).problem == "response-not-stored"
    assert (shop.runs, seen, shop.effects) == (1, [True], 0 if blocking else 1)


@pytest.mark.rule("O7", "O2")
async def test_events_that_fail_before_the_first_give_the_key_back(shop: Shop) -> None:
    async def pay() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        if shop.runs == 1:
            raise SoldOutError
        yield {"n": shop.runs}

    app = one_route(shop, pay, response_class=EventSourceResponse)
    talk = Conversation(app, key="k", headers=ALICE)
    with pytest.raises(ExceptionGroup):
        await talk.run()
    assert (talk.reply.status, shop.untouched) == (500, True)
    assert (await call(app, key="k", headers=ALICE)).body == b'data: {"n":2}\n\n'


async def misstated() -> AsyncIterator[Payment]:
    """Yield what it does not declare; a function of the module's, for its annotation."""
    semel.current().tx  # type: ignore[union-attr] # noqa: B018 - in the test
    yield {"amount": "much"}  # type: ignore[misc] # on purpose


@pytest.mark.rule("O7", "O2")
async def test_a_first_event_that_is_invalid_gives_the_key_back(shop: Shop) -> None:
    app = one_route(shop, misstated, response_class=EventSourceResponse)
    talk = Conversation(app, key="k", headers=ALICE)
    with pytest.raises(ExceptionGroup):
        await talk.run()
    assert (talk.reply.status, shop.untouched) == (500, True)


@pytest.mark.rule("O7")
async def test_events_without_any(shop: Shop) -> None:
    async def pay() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        return
        yield {}

    app = one_route(shop, pay, response_class=EventSourceResponse)
    reply = await call(app, key="k", headers=ALICE)
    assert (reply.status, reply.body, reply.complete, shop.effects) == (200, b"", True, 1)


@pytest.mark.rule("O7")
async def test_an_event_arrives_before_the_next_one_is_made(shop: Shop) -> None:
    arrived = asyncio.Event()

    async def pay() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        yield {"n": 1}
        await arrived.wait()
        yield {"n": 2}

    app = one_route(shop, pay, response_class=EventSourceResponse)
    talk = Conversation(app, key="k", headers=ALICE)
    task = talk.start()
    await talk.until(lambda reply: b'"n":1' in reply.body)
    assert shop.effects == 1
    arrived.set()
    assert (await task).complete


@pytest.mark.rule("O7")
async def test_events_of_a_streaming_response(shop: Shop) -> None:
    async def lines() -> AsyncIterator[bytes]:
        with pytest.raises(ClaimClosedError):
            _ = shop.guard.current().tx
        yield b"data: 1\n\n"

    async def pay() -> Response:
        await shop.pay()
        return StreamingResponse(lines(), media_type="text/event-stream")

    app = one_route(shop, pay)
    assert (await call(app, key="k", headers=ALICE)).body == b"data: 1\n\n"
    assert (await call(app, key="k", headers=ALICE)).problem == "response-not-stored"
    assert shop.effects == 1


@pytest.mark.rule("O7")
async def test_a_generator_for_a_response_class_that_streams_events_by_itself(shop: Shop) -> None:
    class Events(StreamingResponse):
        media_type = "text/event-stream"

    async def pay() -> AsyncIterator[bytes]:
        shop.runs += 1
        yield b"data: 1\n\n"

    app = one_route(shop, pay, response_class=Events)
    assert (await call(app, key="k", headers=ALICE)).body == b"data: 1\n\n"
    assert (await call(app, key="k", headers=ALICE)).problem == "response-not-stored"
    assert shop.runs == 1


@pytest.mark.rule("O7")
async def test_a_long_stream_is_settled_on_the_way(shop: Shop) -> None:
    async def lines() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 400_000

    async def pay() -> Response:
        await shop.pay()
        return StreamingResponse(lines())

    app = one_route(shop, pay)
    reply = await call(app, key="k", headers=ALICE)
    assert (len(reply.body), shop.effects) == (1_200_000, 1)
    assert (await call(app, key="k", headers=ALICE)).problem == "response-not-stored"


@pytest.mark.rule("O6", "R1")
@pytest.mark.parametrize(("size", "problem"), [(100, ""), (1_100_000, "response-not-stored")])
async def test_a_file(shop: Shop, tmp_path: Path, size: int, problem: str) -> None:
    path = tmp_path / "receipt.pdf"
    path.write_bytes(b"x" * size)

    async def pay() -> FileResponse:
        await shop.pay()
        return FileResponse(path, 201, filename="receipt.pdf")

    app = one_route(shop, pay)
    first = await call(app, key="k", headers=ALICE)
    assert (first.status, len(first.body), shop.effects) == (201, size, 1)
    again = await call(app, key="k", headers=ALICE)
    assert again.problem == problem
    if not problem:
        kept = ("content-type", "content-disposition", "etag", "last-modified", "content-length")
        assert [again.get(name) for name in kept] == [first.get(name) for name in kept]
    assert shop.runs == 1


@pytest.mark.rule("O6")
async def test_an_answer_without_content(shop: Shop) -> None:
    app = one_route(shop, shop.pay, status_code=204)
    for replayed in (False, True):
        reply = await call(app, key="k", headers=ALICE)
        assert (reply.status, reply.body, reply.replayed) == (204, b"", replayed)


@pytest.mark.rule("O5", "O6")
@pytest.mark.parametrize("failing", [True, False])
async def test_a_client_that_leaves_in_the_middle_of_a_stream(shop: Shop, failing: bool) -> None:
    left = asyncio.Event()

    async def lines() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        yield {"n": 1}
        talk.left.set()
        left.set()
        await asyncio.sleep(0)
        yield {"n": 2}

    app = one_route(shop, lines)
    talk = Conversation(app, key="k", headers=ALICE, failing=failing)
    await talk.run()
    assert left.is_set()
    again = await call(app, key="k", headers=ALICE)
    assert again.body == b'{"n":1}\n{"n":2}\n'
    # Cut, the first was rolled back; whole, it is replayed: never half of it.
    assert shop.effects == 1
    assert shop.runs == (1 if again.replayed else 2)


# Bodies.


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


# Middleware of the usual kinds.


@pytest.mark.rule("W1", "R1")
async def test_inside_of_the_middleware_of_starlette(shop: Shop) -> None:
    seen: list[int] = []

    async def count(request: Request, go_on: Any) -> Response:
        response: Response = await go_on(request)
        seen.append(response.status_code)
        response.headers["x-outside"] = "yes"
        return response

    async def pay(tasks: BackgroundTasks) -> str:
        await shop.pay()
        tasks.add_task(seen.append, 0)
        assert not shop.guard.current().closed
        return "paid" * 1000

    api = guarded_router(shop.guard)
    api.post("/payments")(pay)
    app = service(
        api,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=count), Middleware(GZipMiddleware)],
    )
    packed = {**ALICE, "accept-encoding": "gzip"}
    first = await call(app, key="k", headers=packed)
    again = await call(app, key="k", headers=packed)
    plain = await call(app, key="k", headers=ALICE)
    assert [r.get("content-encoding") for r in (first, again, plain)] == ["gzip", "gzip", None]
    assert first.body == again.body
    assert plain.json() == "paid" * 1000
    assert (again.replayed, again.get("x-outside")) == (True, "yes")
    assert (seen, shop.runs, shop.effects) == ([200, 0, 200, 200], 1, 1)


@pytest.mark.rule("W1")
async def test_websockets_pass(shop: Shop) -> None:
    api = guarded_router(shop.guard)

    @api.websocket("/talk")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    sent: list[str] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    app: App = service(api)
    scope = {
        "type": "websocket",
        "path": "/talk",
        "headers": [],
        "query_string": b"",
        "subprotocols": [],
    }
    await app(scope, receive, send)
    assert sent == ["websocket.accept", "websocket.close"]
