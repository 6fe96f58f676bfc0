"""Options of one route, and keys that are not in the header (rules K3, K6)."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from fastapi import (
    Request,
)

import semel
from asgi_driver import call
from asgi_shop import ALICE, Shop
from fastapi_app import (
    guarded_router,
    service,
)
from semel.core.key import BodyField
from semel.core.model import Mode
from semel.errors import UsageError
from semel.fastapi import route_class

BOB = {"authorization": "Bearer bob"}


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


@pytest.mark.rule("K3")
async def test_options_of_one_route(shop: Shop) -> None:
    api = guarded_router(shop.guard)

    @api.post("/optional")
    @semel.options(required=False)
    async def optional() -> bool:
        return semel.current() is None

    @api.post("/free")
    @semel.options(enabled=False)
    async def free() -> bool:
        return semel.current() is None

    @api.put("/put")
    @semel.options(methods={"put"}, ignore=("/at",))
    async def put() -> bool:
        return semel.current() is None

    app = service(api)
    assert (await call(app, target="/optional", headers=ALICE)).json() is True
    assert (await call(app, target="/optional", headers=ALICE, key="o")).json() is False
    assert (await call(app, target="/optional", headers=ALICE, key="o")).replayed
    assert (await call(app, target="/optional", headers=ALICE, key=b'"')).status == 400
    assert (await call(app, target="/free", key="k")).json() is True
    first = await call(app, "PUT", "/put", headers=ALICE, key="p", body=b'{"at": 1}')
    again = await call(app, "PUT", "/put", headers=ALICE, key="p", body=b'{"at": 2}')
    assert (first.json(), again.replayed) == (False, True)


@pytest.mark.rule("X1")
async def test_the_retention_of_one_route() -> None:
    now = [1000.0]
    shop = Shop()
    shop.store.database.clock = lambda: now[0]
    api = guarded_router(shop.guard)
    api.post("/short")(semel.options(retention=60)(functools.partial(shop.pay)))
    app = service(api)
    for seconds, replayed in ((0, False), (59, True), (2, False)):
        now[0] += seconds
        assert (await call(app, target="/short", key="k", headers=ALICE)).replayed is replayed


@pytest.mark.rule("K3")
async def test_options_add_up_and_survive_decorators(shop: Shop) -> None:
    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        async def wrapper() -> Any:
            return await function()

        return wrapper

    api = guarded_router(shop.guard)

    @api.post("/payments")
    @decorated
    @semel.options(required=False)
    @semel.options(replay_marker="X-Again", required=True)
    async def pay() -> None:
        shop.runs += 1

    assert (await call(service(api), headers=ALICE)).status == 200
    await call(service(api), headers=ALICE, key="k")
    assert (await call(service(api), headers=ALICE, key="k")).get("x-again") == "true"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"retension": 1}, "no option retension; there are: .*retention"),
        ({"remembered": 1}, "remembered belongs to the whole process"),
        ({"retention": -1}, "retention must be a positive"),
        ({"methods": {"GET"}}, "GET must have no effect"),
        ({"required": 0}, "required must be True or False"),
    ],
)
def test_options_that_are_wrong_are_refused_at_once(changes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        semel.options(**changes)


def test_options_that_only_the_guard_can_judge_are_refused_at_registration(shop: Shop) -> None:
    api = guarded_router(shop.guard)

    async def pay() -> None: ...

    with pytest.raises(UsageError, match=r"options of .*pay: .*mode leased"):
        api.post("/payments")(semel.options(mode=Mode.LEASED)(pay))
    with pytest.raises(UsageError, match="header name"):
        guarded_router(shop.guard.with_options(replay_marker="two words"))


def test_options_above_the_routes_decorator_are_refused(shop: Shop) -> None:
    api = guarded_router(shop.guard)

    async def pay() -> None: ...

    with pytest.raises(UsageError, match=r"pay is registered already: put @semel\.options under"):
        semel.options(required=False)(api.post("/payments")(pay))
    with pytest.raises(UsageError, match="can hold no options"):
        semel.options()(shop.pay)


def test_route_class_needs_a_guard_and_a_scope(shop: Shop) -> None:
    for wrong in ("tenant", None, 7):
        with pytest.raises(UsageError, match="scope must be a FastAPI dependency"):
            route_class(shop.guard, scope=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs an AsyncGuard"):
        route_class(shop.store, scope=semel.SHARED)  # type: ignore[arg-type]


@pytest.mark.rule("K6")
async def test_a_key_in_the_body_is_read_after_authentication(shop: Shop) -> None:
    guard = shop.guard.with_options(key=BodyField("/id"))
    api = guarded_router(guard)

    @api.post("/events")
    async def receive(request: Request) -> Any:
        await shop.pay()
        return await request.json()

    app = service(api)
    assert (await call(app, target="/events", body=b'{"id": "a"}')).status == 401
    for replayed in (False, True):
        reply = await call(app, target="/events", headers=ALICE, body=b'{"id": "a"}')
        assert (reply.status, reply.replayed) == (200, replayed)
    for body, problem in ((b"{}", "key-missing"), (b'{"id": 7}', "key-malformed")):
        reply = await call(app, target="/events", headers=ALICE, body=body)
        assert (reply.status, reply.problem) == (400, problem)
    assert shop.runs == 1


@pytest.mark.rule("K6", "K3")
async def test_a_body_without_a_key_where_none_is_required(shop: Shop) -> None:
    guard = shop.guard.with_options(key=BodyField("/id"), required=False)
    api = guarded_router(guard)

    @api.post("/events")
    async def receive(request: Request) -> Any:
        assert (semel.current() is None) is ((await request.json()).get("id") is None)
        return await request.json()

    for body in (b"{}", b'{"id":"a"}'):
        assert (await call(service(api), target="/events", headers=ALICE, body=body)).body == body


@pytest.mark.rule("K3")
async def test_when_exempts_requests(shop: Shop) -> None:
    async def mutates(request: Any) -> bool:
        return b"mutation" in await request.body()

    api = guarded_router(shop.guard.with_options(when=mutates))

    @api.post("/graphql")
    async def graphql(request: Request) -> bool:
        assert await request.body()
        return semel.current() is None

    app = service(api)
    query = await call(app, target="/graphql", headers=ALICE, body=b"query")
    change = await call(app, target="/graphql", headers=ALICE, body=b"mutation", key="k")
    assert (query.json(), change.json()) == (True, False)
    assert (await call(app, target="/graphql", headers=ALICE, body=b"mutation")).status == 400
