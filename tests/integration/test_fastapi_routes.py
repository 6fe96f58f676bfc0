"""FastAPI's own work comes first, then the claim, then the endpoint (rules R2, W1).

A store in memory stands for the database: these are about who is asked when.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from fastapi import (
    APIRouter,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Security,
)
from fastapi.security import SecurityScopes

import semel
from asgi_driver import call
from asgi_shop import ALICE, Shop
from fastapi_app import (
    FIVE,
    Callers,
    Payment,
    guarded_router,
    service,
)
from semel.core.model import Mode
from semel.fastapi import route_class

BOB = {"authorization": "Bearer bob"}


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
