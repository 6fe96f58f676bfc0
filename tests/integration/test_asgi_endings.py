"""Every way in which a guarded request can end badly: nothing is left behind."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from asgi_driver import Conversation, Reply, call
from asgi_shop import ALICE, Shop
from semel.claim import AsyncClaim
from semel.core.model import Answer, InDoubt, InFlight, Mismatch, Mode, NotStored, Replay
from semel.errors import CommitFailedError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request

    from semel.web.asgi_types import App, AsgiScope, Receive, Send


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


def talk_to(app: App, **parts: Any) -> Conversation:
    return Conversation(app, **{"key": "k", "headers": ALICE, **parts})


async def pay(app: App) -> Reply:
    return await call(app, key="k", headers=ALICE)


async def passing(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    return await call_next(request)


def broken_commit(shop: Shop) -> None:
    shop.trouble["claim_complete"] = StoreUnavailableError("the connection was lost")


RESPONSES: dict[str, Callable[[BackgroundTask], Response]] = {
    "plain": lambda task: JSONResponse({}, 201, background=task),
    "stream": lambda task: StreamingResponse(slow_lines(), 201, background=task),
    "events": lambda task: StreamingResponse(
        slow_lines(), media_type="text/event-stream", background=task
    ),
    "file": lambda task: FileResponse(__file__, background=task),
}


async def slow_lines() -> AsyncIterator[bytes]:
    for number in range(3):
        await asyncio.sleep(0)
        yield b"%d\n" % number


@pytest.mark.rule("O4", "A6")
@pytest.mark.parametrize("kind", RESPONSES)
@pytest.mark.parametrize("inside", [False, True], ids=["", "wrapped"])
async def test_a_commit_that_fails(shop: Shop, kind: str, inside: bool) -> None:
    """After the answer was captured: 503, no work after the response, nothing stored."""
    done: list[str] = []

    async def handler(_: Request) -> Response:
        await shop.pay()
        shop.guard.current().after_commit(lambda: done.append("hook"))
        return RESPONSES[kind](BackgroundTask(done.append, "task"))

    middleware = [Middleware(BaseHTTPMiddleware, dispatch=passing)] if inside else []
    app = shop.service(handler, inside=middleware)
    broken_commit(shop)
    reply = await pay(app)
    assert (reply.status, reply.problem, reply.complete) == (503, "store-unavailable", True)
    assert reply.get("retry-after")
    assert reply.get("content-type") == "application/problem+json"
    assert (done, shop.untouched) == ([], True)
    assert "commit-failed" in shop.told
    shop.trouble.clear()
    assert (await pay(app)).status in {200, 201}
    assert (done, shop.runs, shop.effects) == (["hook", "task"], 2, 1)


@pytest.mark.rule("O4")
async def test_no_handler_of_the_application_sees_a_failed_commit(shop: Shop) -> None:
    seen: list[Exception] = []

    async def on_error(_: Request, error: Exception) -> Response:
        seen.append(error)
        return Response(b"our own 500", 500)

    async def handler(_: Request) -> Response:
        await shop.pay()
        return JSONResponse({}, 201)

    routes = [Route("/payments", handler, methods=["POST"])]
    app = Starlette(routes=routes, exception_handlers={Exception: on_error})
    broken_commit(shop)
    assert (await pay(shop.guarded(app))).problem == "store-unavailable"
    assert not seen


AFTERWARDS: dict[str, tuple[object, int, str]] = {
    "a rival was quicker": (Replay(Answer(201, ((b"location", b"/1"),), b"rival")), 201, ""),
    "a rival runs": (InFlight(2.0), 409, "in-flight"),
    "a rival sent another": (Mismatch(), 422, "key-reused"),
    "nobody knows": (InDoubt(), 409, "outcome-unknown"),
    "a rival streamed": (NotStored(200), 409, "response-not-stored"),
    "free": (None, 503, "store-unavailable"),
}


@pytest.mark.rule("O4", "A6")
@pytest.mark.parametrize("case", AFTERWARDS.values(), ids=AFTERWARDS)
async def test_what_a_look_after_the_failure_found(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, case: tuple[object, int, str]
) -> None:
    decision, status, problem = case

    async def complete(claim: AsyncClaim[Any], _: Answer) -> None:
        await claim.release()
        raise CommitFailedError("lost", decision)

    async def handler(_: Request) -> Response:
        return JSONResponse({}, 201)

    monkeypatch.setattr(AsyncClaim, "complete", complete)
    reply = await pay(shop.service(handler))
    assert (reply.status, reply.problem) == (status, problem)
    assert reply.replayed == (status == 201)


@pytest.mark.rule("O6", "A6")
async def test_an_unforeseen_error_of_the_store_makes_no_500(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def complete(claim: AsyncClaim[Any], _: Answer) -> None:
        await claim.release()
        raise ZeroDivisionError

    async def handler(_: Request) -> Response:
        return JSONResponse({}, 201)

    monkeypatch.setattr(AsyncClaim, "complete", complete)
    assert (await pay(shop.service(handler))).problem == "store-unavailable"
    assert "could not be settled" in caplog.text


@pytest.mark.rule("O2", "O6")
@pytest.mark.parametrize("inside", [False, True], ids=["", "wrapped"])
async def test_an_application_that_raises(shop: Shop, inside: bool) -> None:
    async def handler(_: Request) -> Response:
        await shop.pay()
        raise LookupError("no such account")

    middleware = [Middleware(BaseHTTPMiddleware, dispatch=passing)] if inside else []
    talk = talk_to(shop.service(handler, inside=middleware))
    with pytest.raises(LookupError, match="no such account"):
        await talk.run()
    assert talk.reply.status == 500, "made by the framework, outside"
    assert shop.untouched
    assert shop.told == ["released"]


@pytest.mark.rule("O1", "O6")
async def test_an_error_that_the_application_answers_itself(shop: Shop) -> None:
    async def on_error(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 402)

    async def handler(_: Request) -> Response:
        await shop.pay()
        raise LookupError("declined")

    app = shop.service(handler, exception_handlers={LookupError: on_error})
    assert (await pay(app)).json() == {"error": "declined"}
    again = await pay(app)
    assert (again.status, again.replayed, shop.effects, shop.runs) == (402, True, 0, 1)


@pytest.mark.rule("O5", "O6")
async def test_an_application_that_raises_in_the_middle_of_its_answer(shop: Shop) -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield b"first half"
        raise LookupError("second half")

    async def handler(_: Request) -> Response:
        await shop.pay()
        return StreamingResponse(lines(), 201)

    talk = talk_to(shop.guarded(shop.service(handler).router))
    with pytest.raises(LookupError, match="second half"):
        await talk.run()
    assert not talk.sent, "so that the server can answer 500"
    assert shop.untouched


@pytest.mark.rule("O5", "O6")
async def test_an_application_that_stops_in_the_middle_of_its_answer(shop: Shop) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        del scope, receive
        await shop.pay()
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    talk = talk_to(shop.guarded(app))
    reply = await talk.run()
    assert (reply.body, reply.complete) == (b"half", False)
    assert shop.untouched


@pytest.mark.rule("O5", "O6")
@pytest.mark.parametrize("declared", [b"3", b"5"])
async def test_a_body_of_another_length_than_declared(shop: Shop, declared: bytes) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        del scope, receive
        await shop.pay()
        headers = [(b"content-length", declared)]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"four"})

    talk = talk_to(shop.guarded(app))
    await talk.app(talk.scope, talk.receive, talk.send)
    assert talk.sent[-1]["body"] == b"four", "the server is to see it"
    assert shop.untouched


@pytest.mark.rule("O6")
async def test_an_application_that_sends_nothing(shop: Shop) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        del scope, receive, send
        await shop.pay()

    talk = talk_to(shop.guarded(app))
    await talk.run()
    assert not talk.sent
    assert shop.untouched


@pytest.mark.rule("O6")
@pytest.mark.parametrize("wrong", ["body first", "two starts"])
async def test_an_application_that_breaks_the_protocol(shop: Shop, wrong: str) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        del scope, receive
        start = {"type": "http.response.start", "status": 200, "headers": []}
        if wrong == "body first":
            await send({"type": "http.response.body", "body": b""})
        await send(start)
        await send(start)

    with pytest.raises(RuntimeError):
        await talk_to(shop.guarded(app)).run()
    assert shop.untouched


@pytest.mark.rule("O6")
async def test_work_that_fails_after_the_response_changes_nothing(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise LookupError("mail server")

    async def handler(_: Request) -> Response:
        await shop.pay()
        shop.guard.current().after_commit(fail)
        return JSONResponse({}, 201, background=BackgroundTask(fail))

    app = shop.guarded(shop.service(handler).router)
    talk = talk_to(app)
    with caplog.at_level(logging.WARNING, "semel"), pytest.raises(LookupError):
        await talk.run()
    assert talk.reply.status == 201
    assert "after-commit-failed" in shop.told
    assert (await pay(app)).replayed


@pytest.mark.rule("O6")
async def test_an_error_while_an_answer_is_withdrawn_is_not_lost(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            await JSONResponse({}, 201)(scope, receive, send)
        finally:
            raise LookupError("in the clean-up")

    broken_commit(shop)
    assert (await pay(shop.guarded(app))).problem == "store-unavailable"
    assert "in the clean-up" in caplog.text


@pytest.mark.rule("O4", "O6")
async def test_an_application_that_catches_everything_gets_no_second_answer(shop: Shop) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        for status in (201, 500):
            try:
                await JSONResponse({}, status)(scope, receive, send)
            except BaseException:  # noqa: BLE001, S112 - bad manners on purpose
                continue

    broken_commit(shop)
    assert (await pay(shop.guarded(app))).problem == "store-unavailable"
    assert shop.untouched


@pytest.mark.rule("W1")
@pytest.mark.parametrize("kind", ["plain", "stream"])
async def test_middleware_that_wraps_requests_inside_and_outside(shop: Shop, kind: str) -> None:
    done: list[int] = []

    async def dispatch(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        await request.body()
        response = await call_next(request)
        response.headers["x-wrapped"] = "1"
        return response

    async def handler(request: Request) -> Response:
        assert await request.json() == {}
        await shop.pay()
        return RESPONSES[kind](BackgroundTask(lambda: done.append(shop.effects)))

    wrapped = Middleware(BaseHTTPMiddleware, dispatch=dispatch)
    app = shop.service(handler, outside=[wrapped], inside=[wrapped])
    first, again = await pay(app), await pay(app)
    assert first.body == again.body
    assert (first.status, again.status, again.replayed) == (201, 201, True)
    assert (done, shop.runs, shop.effects) == ([1], 1, 1)
