"""The endpoint is called as FastAPI would call it, wherever its route is included (W1)."""

from __future__ import annotations

import functools
import threading
from typing import Annotated, Any

import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Depends,
    FastAPI,
    Query,
    Request,
    Response,
)
from pydantic import BaseModel

import semel
from asgi_driver import call
from asgi_shop import ALICE, Shop
from fastapi_app import FIVE, Payment, guarded_router, one_route, service
from semel.core.model import Mode
from semel.fastapi import route_class

BOB = {"authorization": "Bearer bob"}


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


@pytest.mark.rule("W1")
async def test_the_endpoint_has_all_that_it_asks_for(shop: Shop) -> None:
    done: list[int] = []
    api = guarded_router(shop.guard)

    @api.post("/payments/{order}", status_code=202)
    async def pay(  # noqa: PLR0913, PLR0917 - all that there is
        request: Request,
        order: int,
        payment: Payment,
        response: Response,
        tasks: BackgroundTasks,
        q: Annotated[list[int], Query()],
        **_: Any,
    ) -> dict[str, Any]:
        assert isinstance(request, Request)
        assert await request.json() == {"amount": 5}
        await shop.pay()
        response.headers["Location"] = f"/payments/{order}"
        response.status_code = 203
        tasks.add_task(done.append, payment.amount)
        return {"order": order, "q": q, "path": request.url.path}

    target = "/payments/7?q=1&q=2&_=x"
    for replayed in (False, True):
        reply = await call(service(api), target=target, key="k", headers=ALICE, body=FIVE)
        assert (reply.status, reply.get("location")) == (203, "/payments/7")
        assert reply.json() == {"order": 7, "q": [1, 2], "path": "/payments/7"}
        assert reply.replayed is replayed
    assert (done, shop.runs) == ([5], 1)


class Secret(BaseModel):
    shown: int
    hidden: int = 0


class Shown(BaseModel):
    shown: int


@pytest.mark.rule("R1")
async def test_the_response_model_is_applied_once(shop: Shop) -> None:
    api = guarded_router(shop.guard)

    @api.post("/payments", response_model=Shown)
    async def pay() -> Secret:
        await shop.pay()
        return Secret(shown=1, hidden=2)

    for _ in range(2):
        assert (await call(service(api), key="k", headers=ALICE)).body == b'{"shown":1}'


@pytest.mark.rule("R1")
async def test_a_replay_is_the_stored_answer_with_this_requests_own_headers(shop: Shop) -> None:
    """What dependencies say of the moment is theirs; what the first answer said is the replay's."""
    count = iter(range(10))

    def limit(response: Response) -> None:
        response.headers["X-RateLimit-Remaining"] = str(9 - next(count))
        response.headers["ETag"] = "not the first answer's"
        response.set_cookie("session", "fresh")

    api = guarded_router(shop.guard, dependencies=[Depends(limit)])

    @api.post("/payments")
    async def pay(response: Response) -> int:
        await shop.pay()
        response.headers["Link"] = "</x>"
        return 1

    replies = [await call(service(api), key="k", headers=ALICE) for _ in range(2)]
    reused = await call(service(api), key="k", headers=ALICE, body=b"[]")
    assert [reply.get("x-ratelimit-remaining") for reply in (*replies, reused)] == ["9", "8", "7"]
    assert [reply.all("link") for reply in (*replies, reused)] == [["</x>"], ["</x>"], []]
    assert [len(reply.all("etag")) for reply in (*replies, reused)] == [1, 1, 0]
    assert [len(reply.all("set-cookie")) for reply in replies] == [1, 1]
    assert replies[1].replayed


@pytest.mark.rule("O4")
async def test_the_tasks_of_dependencies_are_not_done_for_a_replay(shop: Shop) -> None:
    done: list[str] = []

    def audit(tasks: BackgroundTasks) -> None:
        tasks.add_task(done.append, "dependency")

    api = guarded_router(shop.guard)

    @api.post("/payments", dependencies=[Depends(audit)])
    async def pay(tasks: BackgroundTasks) -> None:
        await shop.pay()
        tasks.add_task(done.append, "endpoint")

    for _ in range(2):
        await call(service(api), key="k", headers=ALICE)
    await call(service(api), key="k", headers=ALICE, body=b"[]")
    assert done == ["dependency", "endpoint"]


@pytest.mark.rule("W1")
async def test_an_endpoint_in_a_thread_sees_its_claim(shop: Shop) -> None:
    seen: list[tuple[Any, bool]] = []
    api = guarded_router(shop.guard)

    @api.post("/payments")
    def pay(payment: Payment) -> int:
        seen.append((shop.guard.current(), threading.current_thread() is threading.main_thread()))
        return payment.amount

    for replayed in (False, True):
        reply = await call(service(api), key="k", headers=ALICE, body=FIVE)
        assert (reply.json(), reply.replayed) == (5, replayed)
    assert [in_main for _, in_main in seen] == [False]
    assert seen[0][0].closed
    assert semel.current() is None


@pytest.mark.rule("W1")
async def test_partial_functions_methods_objects_and_decorated_ones(shop: Shop) -> None:
    class Desk:
        async def method(self, payment: Payment) -> int:
            await shop.pay()
            return payment.amount

        async def __call__(self, payment: Payment) -> int:
            return await self.method(payment)

    def doubled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(**values: Any) -> Any:
            return function(**values)

        return wrapper

    async def pay(payment: Payment, more: int) -> int:
        await shop.pay()
        return payment.amount + more

    desk = Desk()
    endpoints = [desk.method, desk, doubled(desk.method), functools.partial(pay, more=0)]
    for number, endpoint in enumerate(endpoints):
        api = guarded_router(shop.guard)
        api.post("/payments")(endpoint)
        for replayed in (False, True):
            reply = await call(service(api), key=f"k{number}", headers=ALICE, body=FIVE)
            assert (reply.json(), reply.replayed) == (5, replayed)
    assert shop.runs == len(endpoints)


@pytest.mark.rule("W1", "F1")
async def test_a_router_that_is_included_twice(shop: Shop) -> None:
    api = guarded_router(shop.guard, prefix="/shop")
    api.post("/payments/{order}")(shop.pay)
    outer = APIRouter(prefix="/api")
    outer.include_router(api, prefix="/v1")
    app = FastAPI()
    app.include_router(outer)
    app.include_router(outer, prefix="/again")
    app.include_router(api)
    paths = ("/api/v1/shop/payments/1", "/again/api/v1/shop/payments/1", "/shop/payments/1")
    for path in paths:
        for replayed in (False, True):
            reply = await call(app, target=path, key=path, headers=ALICE)
            assert (reply.status, reply.replayed) == (200, replayed)
    assert (await call(app, target=paths[0], key=paths[1], headers=ALICE)).status == 422
    assert shop.runs == len(paths)
    assert {event.route for event in shop.events if event.name == "replayed"} == {
        "POST " + path.replace("/1", "/{order}") for path in paths
    }


@pytest.mark.rule("W1", "F1")
async def test_a_mounted_application(shop: Shop) -> None:
    app = FastAPI()
    app.mount("/shop", one_route(shop, shop.pay))
    for replayed in (False, True):
        reply = await call(app, target="/shop/payments", key="k", headers=ALICE, body=FIVE)
        assert (reply.status, reply.replayed) == (200, replayed)
    assert {event.route for event in shop.events} == {"POST /shop/payments"}


@pytest.mark.rule("W1")
async def test_an_application_whose_own_router_is_guarded(shop: Shop) -> None:
    app = FastAPI()
    app.router.route_class = route_class(shop.guard, scope=semel.SHARED)
    app.post("/payments", include_in_schema=False)(shop.pay)
    for replayed in (False, True):
        assert (await call(app, key="k")).replayed is replayed
    assert "/payments" not in app.openapi()["paths"]


@pytest.mark.rule("K3")
async def test_methods_that_are_not_guarded_are_none_of_our_business(shop: Shop) -> None:
    api = guarded_router(shop.guard)

    @api.api_route("/payments", methods=["GET", "HEAD", "PUT", "POST"])
    async def serve(request: Request) -> str:
        shop.runs += 1
        assert (semel.current() is None) is (request.method != "POST")
        return request.method

    @api.get("/plain")
    async def plain() -> None:
        shop.runs += 1

    app = service(api)
    for method in ("GET", "HEAD", "PUT"):
        for _ in range(2):
            assert (await call(app, method, key="k", headers=ALICE)).status == 200
    assert (await call(app, "GET", "/plain", key=b'"')).status == 200
    assert (await call(app, "PATCH", key="k", headers=ALICE)).status == 405
    assert (shop.runs, shop.untouched) == (7, True)
    assert (await call(app, "POST", key="k", headers=ALICE)).status == 200
