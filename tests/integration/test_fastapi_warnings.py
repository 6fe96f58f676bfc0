"""What an application is told once: security that a middleware can not see (R2), effects
outside the transaction (W2), and routes that are guarded twice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Security
from fastapi.security import APIKeyCookie, HTTPBearer, OAuth2PasswordBearer
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import semel
from asgi_driver import call
from asgi_shop import ALICE, Shop
from asgi_shop import bearer as scope_of
from fastapi_app import guarded_router, service
from semel import memory, sqlite
from semel.asgi import IdempotencyMiddleware
from semel.core.model import Mode
from semel.core.options import Options
from semel.guard import AsyncGuard
from semel.web.notices import LIMIT, Notices

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from semel.web.asgi_types import App, AsgiScope, Receive, Send


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


# Security dependencies behind a middleware.


async def user(
    token: Annotated[str, Depends(OAuth2PasswordBearer(tokenUrl="/token", auto_error=False))],
) -> str:
    return token


async def own(authorization: Annotated[str | None, Header()] = None) -> str | None:
    return authorization


async def harmless(x_trace: Annotated[str | None, Header()] = None) -> str | None:
    return x_trace


async def start_up(app: App) -> None:
    """Do what a server does before its first request."""
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        assert message["type"].endswith(".complete"), message

    await app({"type": "lifespan"}, receive, send)


def secured_service() -> FastAPI:
    app = FastAPI()

    async def serve() -> None: ...

    app.post("/oauth", dependencies=[Depends(user)])(serve)
    app.post("/scoped", dependencies=[Security(user, scopes=["pay"])])(serve)
    app.put("/put", dependencies=[Depends(HTTPBearer(auto_error=False))])(serve)
    app.get("/get", dependencies=[Depends(HTTPBearer())])(serve)
    app.post("/open", dependencies=[Depends(harmless)])(serve)
    inner = APIRouter(prefix="/inner", dependencies=[Depends(own)])
    inner.patch("/own/{number}")(serve)
    outer = APIRouter()
    outer.include_router(inner)
    app.include_router(outer, prefix="/v1")
    below = FastAPI(dependencies=[Depends(APIKeyCookie(name="session", auto_error=False))])
    below.post("/cookie")(serve)
    app.mount("/below", below)
    return app


SECURED = "PATCH /v1/inner/own/{number}, POST /below/cookie, POST /oauth, POST /scoped"


@pytest.mark.rule("R2")
@pytest.mark.parametrize("how", ["added", "around", "around more", "mounted"])
@pytest.mark.parametrize("at_start", [True, False])
async def test_a_middleware_before_security_dependencies_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, how: str, at_start: bool
) -> None:
    shop, app = Shop(), secured_service()
    guarded: Any = app
    target = "/open"
    if how == "added":
        app.add_middleware(IdempotencyMiddleware, guard=shop.guard, scope=scope_of)
    elif how == "around more":
        guarded = shop.guarded(GZipMiddleware(app))
    elif how == "mounted":
        guarded = Starlette(routes=[Mount("/shop", shop.guarded(app))])
        target = "/shop/open"
    else:
        guarded = shop.guarded(app)
    if at_start:
        await start_up(guarded)
    for _ in range(2):
        assert (await call(guarded, target=target, key="k", headers=ALICE)).status == 200
    [warning] = [text for text in warnings(caplog) if "security" in text]
    assert "semel.fastapi.route_class" in warning
    assert "scope function" in warning
    assert warning.endswith(f": {SECURED}")


@pytest.mark.rule("R2")
async def test_only_guarded_methods_are_named(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(methods=frozenset({"PUT"}))
    await start_up(shop.guarded(secured_service()))
    assert warnings(caplog)[0].endswith(": PUT /put")


@pytest.mark.rule("R2")
@pytest.mark.parametrize("make", [FastAPI, Starlette, lambda: JSONResponse({})])
async def test_applications_without_such_routes_are_not_warned_of(
    caplog: pytest.LogCaptureFixture, make: Callable[[], Any]
) -> None:
    app = Starlette(routes=[Mount("/below", make()), Route("/pay", lambda _: JSONResponse({}))])
    await call(Shop().guarded(app), "GET", "/pay")
    await call(Shop(enabled=False).guarded(secured_service()), "GET", "/get")
    assert warnings(caplog) == []


# Effects outside the transaction.


UNTOUCHED = "transaction-untouched"


@pytest.mark.rule("W2")
@pytest.mark.parametrize("mode", [Mode.JOINED, Mode.ATOMIC])
async def test_a_route_that_never_used_the_transaction(
    caplog: pytest.LogCaptureFixture, mode: Mode
) -> None:
    shop = Shop(mode)
    api = guarded_router(shop.guard)

    async def elsewhere(fail: bool = False) -> None:  # noqa: FBT002 - a query parameter
        if fail:
            raise HTTPException(402)

    api.post("/orders/{number}")(elsewhere)
    api.post("/other")(elsewhere)
    api.post("/payments")(shop.pay)
    app = service(api, "/v1")
    targets = ["/v1/orders/1?fail=1", "/v1/payments"] + ["/v1/orders/1", "/v1/orders/2"] * 2
    for number, target in enumerate(targets):
        await call(app, target=target, key=str(number), headers=ALICE)
        assert (UNTOUCHED in shop.told) is (number > 1)
    assert [(event.name, event.route) for event in shop.events if event.name == UNTOUCHED] == [
        (UNTOUCHED, "POST /v1/orders/{number}")
    ]
    await call(app, target="/v1/other", key="o", headers=ALICE)
    assert [event.route for event in shop.events if event.name == UNTOUCHED][1:] == [
        "POST /v1/other"
    ]
    [first, second] = warnings(caplog)
    assert "POST /v1/orders/{number}" in first
    assert "without using the claim's transaction" in first
    assert "POST /v1/other" in second


@pytest.mark.rule("W2")
async def test_the_middleware_warns_too(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()

    async def elsewhere(_: Any) -> JSONResponse:
        return JSONResponse({})

    app = shop.guarded(Starlette(routes=[Route("/orders/{number}", elsewhere, methods=["POST"])]))
    for number in range(3):
        assert (await call(app, target=f"/orders/{number}", key="k", headers=ALICE)).status in {
            200,
            422,
        }
        await call(app, target=f"/orders/{number}", key=f"k{number}", headers=ALICE)
    assert shop.told.count(UNTOUCHED) == 1
    assert len(warnings(caplog)) == 1


@pytest.mark.rule("W2", "O7")
async def test_a_stream_that_was_settled_early_counts_what_was_done_before() -> None:
    shop = Shop()
    api = guarded_router(shop.guard)

    async def settled(pays: bool) -> Any:
        if pays:
            await shop.pay()
        return JSONResponse("x", headers={"content-type": "text/event-stream"})

    api.post("/payments")(settled)
    app = service(api)
    await call(app, target="/payments?pays=1", key="a", headers=ALICE)
    assert UNTOUCHED not in shop.told
    await call(app, target="/payments?pays=0", key="b", headers=ALICE)
    assert UNTOUCHED in shop.told


@pytest.mark.rule("W2")
async def test_on_sqlite_the_transaction_counts_after_it_has_ended(tmp_path: Path) -> None:
    store = sqlite.AsyncStore(tmp_path / "shop.db")
    told: list[str] = []
    async with AsyncGuard(store, Options(), on_event=lambda e: told.append(e.name)) as guard:
        await store.migrate()
        api = guarded_router(guard, semel.SHARED)

        async def pay(pays: bool) -> None:
            if pays:
                await guard.current().tx.execute("CREATE TABLE IF NOT EXISTS paid (what TEXT)")

        api.post("/payments")(pay)
        app = service(api)
        assert (await call(app, target="/payments?pays=1", key="a")).status == 200
        assert told == ["executed"]
        assert (await call(app, target="/payments?pays=0", key="b")).status == 200
        assert told == ["executed", "executed", UNTOUCHED]


def test_what_is_said_once_has_an_end() -> None:
    notices = Notices()
    assert notices.first("a", "route")
    assert not notices.first("a", "route")
    assert sum(notices.first(number) for number in range(LIMIT * 2)) == LIMIT - 1


# Guards inside of guards.


@pytest.mark.rule("W1", "A1")
@pytest.mark.parametrize("mounted", [True, False])
async def test_a_guarded_route_behind_a_guarding_middleware_claims_once(
    caplog: pytest.LogCaptureFixture, mounted: bool
) -> None:
    shop = Shop(Mode.ATOMIC)
    api = guarded_router(shop.guard)

    async def pay() -> None:
        await shop.pay()
        assert len(shop.store.database._open) == 1

    api.post("/payments")(pay)
    app = service(api)
    target = "/payments"
    if mounted:
        below, app, target = app, FastAPI(), "/below/payments"
        app.mount("/below", below)
    app.add_middleware(IdempotencyMiddleware, guard=shop.guard, scope=scope_of)
    for replayed in (False, True):
        reply = await call(app, target=target, key="k", headers=ALICE)
        assert (reply.status, reply.replayed) == (200, replayed)
    await call(app, target=target, key="other", headers=ALICE)
    assert (shop.runs, shop.effects) == (2, 2)
    [warning] = [text for text in warnings(caplog) if "twice" in text]
    assert warning.startswith(f"POST {target} is guarded twice")


@pytest.mark.rule("W1", "A1")
async def test_a_middleware_inside_a_middleware_claims_once() -> None:
    shop = Shop()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await shop.pay()
        await JSONResponse({})(scope, receive, send)

    twice = shop.guarded(shop.guarded(app))
    for replayed in (False, True):
        reply = await call(twice, key="k", headers=ALICE)
        assert (reply.status, reply.replayed) == (200, replayed)
    assert (shop.runs, shop.effects) == (1, 1)


@pytest.mark.rule("W1")
async def test_guards_of_two_stores_claim_each_in_its_own() -> None:
    shop, other = Shop(), Shop()
    api = guarded_router(shop.guard)
    api.post("/payments")(shop.pay)
    app = other.guarded(service(api))
    first = await call(app, key="k", headers=ALICE)
    again = await call(app, key="k", headers=ALICE)
    assert (first.status, first.replayed, again.replayed) == (200, False, True)
    assert (shop.runs, len(shop.claims), len(other.claims)) == (1, 1, 1)


@pytest.mark.rule("W1")
async def test_three_guards_of_two_stores() -> None:
    shop, other = Shop(), Shop()
    api = guarded_router(shop.guard)
    api.post("/payments")(shop.pay)
    app = shop.guarded(other.guarded(service(api)))
    for replayed in (False, True):
        assert (await call(app, key="k", headers=ALICE)).replayed is replayed
    assert (shop.runs, len(shop.claims), len(other.claims)) == (1, 1, 1)


@pytest.mark.rule("W1", "K3")
async def test_a_route_inside_of_a_middleware_that_let_the_request_pass() -> None:
    shop = Shop()
    api = guarded_router(shop.guard)
    api.post("/payments")(shop.pay)
    outside = AsyncGuard(shop.store, Options(when=lambda _: False))
    app = IdempotencyMiddleware(service(api), outside, scope=scope_of)
    for replayed in (False, True):
        assert (await call(app, key="k", headers=ALICE)).replayed is replayed


@pytest.mark.rule("W1")
async def test_an_endpoint_that_calls_another_guarded_application() -> None:
    """The second one has a claim of its own where the key is another, in another store."""
    shop, other = Shop(), Shop()
    inner = guarded_router(other.guard)
    inner.post("/payments")(other.pay)
    api = guarded_router(shop.guard)

    async def pay() -> int:
        claim = shop.guard.current()
        reply = await call(service(inner), key="inner", headers=ALICE)
        assert shop.guard.current() is claim
        await shop.pay()
        return reply.status

    api.post("/payments")(pay)
    for replayed in (False, True):
        reply = await call(service(api), key="k", headers=ALICE)
        assert (reply.json(), reply.replayed) == (200, replayed)
    assert (shop.effects, other.effects) == (1, 1)
    assert isinstance(shop.store, memory.AsyncStore)
