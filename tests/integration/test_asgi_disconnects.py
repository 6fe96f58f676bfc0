"""Clients that leave and tasks that are cancelled: effect and claim stay together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse

from asgi_driver import Conversation, Reply, call
from asgi_shop import ALICE, Shop
from semel.claim import AsyncClaim
from semel.core.model import Answer, Mode, Status
from semel.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request

    from semel.web.asgi_types import App, AsgiScope, Receive, Send


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


def talk_to(app: App, **parts: Any) -> Conversation:
    return Conversation(app, **{"key": "k", "headers": ALICE, **parts})


async def pay(app: App) -> Reply:
    return await call(app, key="k", headers=ALICE)


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def passing(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    return await call_next(request)


def broken_commit(shop: Shop) -> None:
    shop.trouble["claim_complete"] = StoreUnavailableError("the connection was lost")


async def slow_lines() -> AsyncIterator[bytes]:
    for number in range(3):
        await asyncio.sleep(0)
        yield b"%d\n" % number


@pytest.mark.rule("W1", "O5")
async def test_the_application_hears_of_a_client_that_left_only_then(shop: Shop) -> None:
    entered, left = asyncio.Event(), asyncio.Event()
    heard: list[bool] = []

    async def handler(request: Request) -> Response:
        await request.body()
        await shop.pay()
        heard.append(await request.is_disconnected())
        entered.set()
        await left.wait()
        heard.append(await request.is_disconnected())
        return JSONResponse({}, 201)

    app = shop.service(handler)
    talk = talk_to(app)
    task = talk.start()
    await entered.wait()
    assert heard == [False]
    talk.left.set()
    left.set()
    await task
    assert heard == [False, True]
    assert shop.effects == 1, "the answer is whole, so it is kept for the retry"
    assert (await pay(app)).replayed


@pytest.mark.rule("O5")
async def test_a_client_that_left_gets_its_answer_on_the_retry(shop: Shop) -> None:
    done: list[int] = []
    talks: list[Conversation] = []

    async def handler(_: Request) -> Response:
        await shop.pay()
        talks[0].left.set()
        return JSONResponse({}, 201, background=BackgroundTask(done.append, 1))

    app = shop.service(handler)
    talks.append(talk_to(app, failing=True))
    await talks[0].run()
    assert not talks[0].sent
    assert (shop.effects, done) == (1, [1])
    assert (await pay(app)).replayed


@pytest.mark.rule("O5", "O4")
@pytest.mark.parametrize("inside", [False, True], ids=["", "wrapped"])
async def test_a_client_that_leaves_in_the_middle_of_the_answer(shop: Shop, inside: bool) -> None:
    """A framework cuts its stream short then, which can not be told from its end."""
    done: list[int] = []
    streaming, never = asyncio.Event(), asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        yield b"first half"
        streaming.set()
        await never.wait()

    async def handler(_: Request) -> Response:
        await shop.pay()
        return StreamingResponse(lines(), 201, background=BackgroundTask(done.append, 1))

    middleware = [Middleware(BaseHTTPMiddleware, dispatch=passing)] if inside else []
    talk = talk_to(shop.service(handler, inside=middleware))
    task = talk.start()
    await streaming.wait()
    talk.left.set()
    await task
    assert not talk.sent
    assert (done, shop.untouched, shop.told) == ([], True, ["released"])


@pytest.mark.rule("O5", "O4")
@pytest.mark.parametrize("kind", ["stream", "file", "wrapped stream"])
async def test_a_client_that_leaves_before_the_answer_begins(
    shop: Shop, kind: str, tmp_path: Path
) -> None:
    done: list[int] = []
    talks: list[Conversation] = []
    path = tmp_path / "receipt"
    path.write_bytes(b"x" * 100_000)

    async def handler(request: Request) -> Response:
        await request.body()
        await shop.pay()
        talks[-1].left.set()
        task = BackgroundTask(done.append, 1)
        if kind == "file":
            return FileResponse(path, background=task)
        return StreamingResponse(slow_lines(), 201, background=task)

    middleware = [Middleware(BaseHTTPMiddleware, dispatch=passing)]
    app = shop.service(handler, inside=middleware if kind == "wrapped stream" else [])
    talks.append(talk_to(app))
    await talks[0].run()
    assert not talks[0].sent
    assert (shop.runs, done, shop.untouched) == (1, [], True)


@pytest.mark.rule("O5", "O7")
async def test_a_client_that_leaves_a_live_stream(shop: Shop) -> None:
    """What is settled streams as it would without us, and its work is done."""
    done: list[str] = []
    never = asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await never.wait()

    async def handler(_: Request) -> Response:
        await shop.pay()
        shop.guard.current().after_commit(lambda: done.append("hook"))
        task = BackgroundTask(done.append, "task")
        return StreamingResponse(events(), media_type="text/event-stream", background=task)

    app = shop.service(handler)
    talk = talk_to(app)
    task = talk.start()
    await talk.until(lambda reply: reply.body)
    talk.left.set()
    await task
    assert sorted(done) == ["hook", "task"]
    assert (shop.effects, shop.claims) == (1, [Status.COMPLETED])
    assert (await pay(app)).problem == "response-not-stored"


class Paused:
    """Holds up the completion of a claim until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, before: bool) -> None:
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        really = AsyncClaim._complete

        async def complete(claim: AsyncClaim[Any], answer: Answer) -> None:
            if not before:
                await really(claim, answer)
            self.reached.set()
            await self.go_on.wait()
            if before:
                await really(claim, answer)

        monkeypatch.setattr(AsyncClaim, "_complete", complete)


@pytest.mark.rule("O4", "O5")
@pytest.mark.parametrize("before", [True, False])
async def test_a_client_that_leaves_during_the_commit(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    before: bool,
) -> None:
    done: list[str] = []

    async def handler(_: Request) -> Response:
        await shop.pay()
        shop.guard.current().after_commit(lambda: done.append("hook"))
        task = BackgroundTask(done.append, "task")
        return StreamingResponse(slow_lines(), 201, background=task)

    pause = Paused(monkeypatch, before=before)
    app = shop.service(handler)
    talk = talk_to(app)
    task = talk.start()
    await pause.reached.wait()
    talk.left.set()
    await turns()
    pause.go_on.set()
    await task
    assert sorted(done) == ["hook", "task"]
    assert (shop.effects, shop.claims) == (1, [Status.COMPLETED])
    assert (await pay(app)).body == b"0\n1\n2\n"


@pytest.mark.rule("O4", "O5")
async def test_a_client_that_leaves_during_a_commit_that_fails(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    async def handler(_: Request) -> Response:
        await shop.pay()
        task = BackgroundTask(done.append, "task")
        return StreamingResponse(slow_lines(), 201, background=task)

    pause = Paused(monkeypatch, before=True)
    broken_commit(shop)
    talk = talk_to(shop.service(handler))
    task = talk.start()
    await pause.reached.wait()
    talk.left.set()
    await turns()
    pause.go_on.set()
    await task
    assert (done, shop.untouched) == ([], True)


@pytest.mark.rule("O4")
async def test_an_application_that_gives_up_during_a_commit_that_fails(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Paused(monkeypatch, before=True)
    broken_commit(shop)

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await shop.pay()
        answering = asyncio.create_task(JSONResponse({}, 201)(scope, receive, send))
        await pause.reached.wait()
        answering.cancel()
        await turns()
        pause.go_on.set()
        await answering

    assert (await pay(shop.guarded(app))).problem == "store-unavailable"
    assert shop.untouched


@pytest.mark.rule("O5", "O6")
@pytest.mark.parametrize("where", ["handler", "stream", "commit", "broken commit"])
async def test_a_task_that_is_cancelled(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """As a server does that shuts down, or a time-out round the application."""
    done: list[str] = []
    reached, never = asyncio.Event(), asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        yield b"1"
        if where == "stream":
            reached.set()
            await never.wait()

    async def handler(_: Request) -> Response:
        await shop.pay()
        shop.guard.current().after_commit(lambda: done.append("hook"))
        if where == "handler":
            reached.set()
            await never.wait()
        return StreamingResponse(lines(), 201, background=BackgroundTask(done.append, "task"))

    if where.endswith("commit"):
        pause = Paused(monkeypatch, before=True)
        reached = pause.reached
    if where == "broken commit":
        broken_commit(shop)
    talk = talk_to(shop.service(handler))
    task = talk.start()
    await reached.wait()
    task.cancel()
    await turns()
    if where.endswith("commit"):
        assert not task.done()
        pause.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not talk.sent
    if where == "commit":
        assert (done, shop.effects, shop.claims) == (["hook"], 1, [Status.COMPLETED])
    else:
        assert (done, shop.untouched) == ([], True)


@pytest.mark.rule("O5", "O6")
async def test_a_time_out_inside_the_application(shop: Shop) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(0):
                await shop.pay()
                await asyncio.Event().wait()
        except TimeoutError:
            await Response(status_code=504)(scope, receive, send)

    assert (await pay(shop.guarded(app))).status == 504
    assert shop.untouched
