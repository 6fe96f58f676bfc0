"""FastAPI's own work comes first, then the claim, then the endpoint (rules R2, W1).

A store in memory stands for the database: these are about who is asked when, and
what FastAPI gives to the endpoint. Sessions and servers have modules of their own.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Annotated, Any

import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Query,
    Request,
    Response,
    Security,
)
from fastapi.security import SecurityScopes
from pydantic import BaseModel

import semel
from asgi_driver import call
from asgi_shop import ALICE, Shop
from fastapi_app import Callers, Payment, guarded_router, service
from semel.core.key import BodyField
from semel.core.model import Mode
from semel.errors import UsageError
from semel.fastapi import route_class

BOB = {"authorization": "Bearer bob"}
FIVE = b'{"amount": 5}'


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


def paying(shop: Shop, callers: Callers | None = None) -> FastAPI:
    api = guarded_router(shop.guard, (callers or Callers()).of)

    @api.post("/payments", status_code=201)
    async def pay(payment: Payment) -> dict[str, int]:
        await shop.pay()
        return {"paid": payment.amount}

    return service(api)


@pytest.mark.rule("W1", "R1")
async def test_a_retry_is_a_replay(shop: Shop) -> None:
    app = paying(shop)
    first = await call(app, key="k", headers=ALICE, body=FIVE)
    again = await call(app, key='"k"', headers=ALICE, body=b'{"amount":5.0}')
    other = await call(app, key="k", headers=ALICE, body=b'{"amount": 6}')
    assert (first.status, first.body, first.replayed) == (201, b'{"paid":5}', False)
    assert (again.status, again.body, again.replayed) == (201, b'{"paid":5}', True)
    assert (other.status, other.problem) == (422, "key-reused")
    assert (shop.runs, shop.effects) == (1, 1)


@pytest.mark.rule("R2")
async def test_who_was_revoked_gets_no_replay(shop: Shop) -> None:
    callers = Callers()
    app = paying(shop, callers)
    assert (await call(app, key="k", headers=ALICE, body=FIVE)).status == 201
    callers.names.remove("alice")
    refused = await call(app, key="k", headers=ALICE, body=FIVE)
    assert (refused.status, refused.get("www-authenticate")) == (401, "Bearer")
    callers.names.add("alice")
    assert (await call(app, key="k", headers=ALICE, body=FIVE)).replayed
    assert shop.runs == 1


@pytest.mark.rule("K4")
async def test_a_key_belongs_to_its_owner(shop: Shop) -> None:
    app = paying(shop)
    for headers in (ALICE, BOB):
        assert not (await call(app, key="k", headers=headers, body=FIVE)).replayed
    assert shop.runs == 2


@pytest.mark.rule("K2")
@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (None, "key-missing"),
        (b'"', "key-malformed"),
        ("", "key-malformed"),
        ("k" * 256, "key-malformed"),
    ],
)
async def test_the_syntax_of_the_key_comes_before_authentication(
    shop: Shop, key: str | bytes | None, problem: str
) -> None:
    asked: list[None] = []

    def asking() -> str:
        asked.append(None)
        raise HTTPException(401)

    api = guarded_router(shop.guard, asking)
    api.post("/payments")(shop.pay)
    reply = await call(service(api), key=key)
    assert (reply.status, reply.problem) == (400, problem)
    assert (asked, shop.runs, shop.untouched, shop.told) == ([], 0, True, ["refused"])


@pytest.mark.rule("R2", "W1")
async def test_what_fastapi_refuses_is_refused_before_any_claim(shop: Shop) -> None:
    app = paying(shop)
    assert (await call(app, key="k", headers=ALICE, body=FIVE)).status == 201
    for body in (b'{"amount": "much"}', b"{", b"{}"):
        for key in ("k", "new"):
            reply = await call(app, key=key, headers=ALICE, body=body)
            assert (reply.status, reply.problem) == (422, "")
            assert "detail" in reply.json()
    assert (shop.runs, len(shop.claims)) == (1, 1)
    assert (await call(app, key="new", headers=ALICE, body=FIVE)).status == 201


@pytest.mark.rule("R2")
async def test_dependencies_of_the_route_and_the_router_come_before_the_replay(shop: Shop) -> None:
    refused: set[str] = set()

    def gate(name: str) -> Any:
        def dependency() -> None:
            if name in refused:
                raise HTTPException(429, name)

        return Depends(dependency)

    api = guarded_router(shop.guard, dependencies=[gate("router")])
    below = gate("below")

    async def deep(_: None = below) -> str:
        return "deep"

    async def pay(found: str = Depends(deep)) -> str:
        await shop.pay()
        return found

    api.post("/payments", dependencies=[gate("route")])(pay)

    app = FastAPI(dependencies=[gate("app")])
    app.include_router(api, dependencies=[gate("include")])
    assert (await call(app, key="k", headers=ALICE)).json() == "deep"
    for name in ("app", "include", "router", "route", "below"):
        refused.add(name)
        reply = await call(app, key="k", headers=ALICE)
        assert (reply.status, reply.json()) == (429, {"detail": name})
        refused.clear()
    assert (await call(app, key="k", headers=ALICE)).replayed
    assert shop.runs == 1


@pytest.mark.rule("K4")
async def test_the_owner_may_be_a_tuple_from_dependencies_two_levels_deep(shop: Shop) -> None:
    async def user(authorization: Annotated[str, Header()]) -> str:
        return authorization

    def tenant(name: str = Depends(user)) -> tuple[str, str]:
        return ("tenant", name)

    api = guarded_router(shop.guard, tenant)
    api.post("/payments")(shop.pay)
    for expected in (False, True):
        assert (await call(service(api), key="k", headers=ALICE)).replayed is expected
    assert not (await call(service(api), key="k", headers=BOB)).replayed


@pytest.mark.rule("K4")
@pytest.mark.parametrize("owner", ["", None, (), 7, ("a", None), " "])
async def test_a_request_that_nobody_owns(shop: Shop, owner: object) -> None:
    api = guarded_router(shop.guard, lambda: owner)
    api.post("/payments")(shop.pay)
    reply = await call(service(api), key="k")
    assert (reply.status, reply.problem) == (400, "scope-missing")
    assert (shop.runs, shop.untouched, shop.told) == (0, True, ["refused"])


@pytest.mark.rule("K4")
async def test_all_callers_may_be_one(shop: Shop) -> None:
    api = guarded_router(shop.guard, semel.SHARED)
    api.post("/payments")(shop.pay)
    assert not (await call(service(api), key="k", headers=ALICE)).replayed
    assert (await call(service(api), key="k", headers=BOB)).replayed


@pytest.mark.rule("K4", "R2")
async def test_the_scope_may_need_scopes_of_oauth(shop: Shop) -> None:
    wanted: list[list[str]] = []

    async def user(scopes: SecurityScopes) -> str:
        wanted.append(scopes.scopes)
        return "alice"

    api = APIRouter(route_class=route_class(shop.guard, scope=Security(user, scopes=["pay"])))
    api.post("/payments")(shop.pay)
    assert (await call(service(api), key="k")).status == 200
    assert wanted == [["pay"]]


@pytest.mark.rule("R2")
async def test_the_scope_dependency_can_be_overridden(shop: Shop) -> None:
    callers = Callers()
    api = guarded_router(shop.guard, callers.of)
    api.post("/payments")(shop.pay)
    app = service(api)
    app.dependency_overrides[callers.of] = lambda: "somebody"
    assert (await call(app, key="k")).status == 200
    assert (await call(app, key="k")).replayed


# What FastAPI gives to the endpoint.


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


# All kinds of endpoints.


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


# Routers and applications.


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
    app.mount("/shop", paying(shop))
    for replayed in (False, True):
        reply = await call(app, target="/shop/payments", key="k", headers=ALICE, body=FIVE)
        assert (reply.status, reply.replayed) == (201, replayed)
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


# Options of one route.


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


# Keys that are not in the header.


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


@pytest.mark.rule("A1")
async def test_a_race_in_one_process(shop: Shop) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()
    api = guarded_router(shop.guard)

    @api.post("/payments")
    async def pay() -> None:
        await shop.pay()
        entered.set()
        await go_on.wait()

    app = service(api)
    first = asyncio.create_task(call(app, key="k", headers=ALICE))
    await entered.wait()
    others = [await call(app, key="k", headers=ALICE) for _ in range(5)]
    go_on.set()
    assert (await first).status == 200
    assert {reply.problem for reply in others} == {"in-flight"}
    assert (shop.runs, shop.effects) == (1, 1)
