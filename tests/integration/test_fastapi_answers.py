"""Every way in which a route of FastAPI's answers: settled first, sent second (O1, O2, O4, O6).

Exceptions and their handlers, tasks, dependencies that end, middleware; in memory,
message by message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import (
    BackgroundTasks,
    Depends,
    HTTPException,
    Request,
    Response,
    WebSocket,
)
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

import semel
from asgi_driver import Conversation, call
from asgi_shop import ALICE, Shop
from fastapi_app import (
    DOWN,
    Payment,
    SoldOutError,
    guarded_router,
    one_route,
    service,
)
from semel.core.model import Mode

if TYPE_CHECKING:
    from semel.web.asgi_types import App


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


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
