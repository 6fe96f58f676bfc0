"""FastAPI with PostgreSQL: the endpoint's own session is in the claim's transaction (rule W2).

The habits of FastAPI's users: a session from a dependency, authentication through it,
a commit after `yield`, one in the endpoint, or none; and what is left of each.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, Header, HTTPException
from fastapi.responses import JSONResponse
from sqlalchemy import event, select, text
from sqlalchemy.ext.asyncio import AsyncSession

import semel
from asgi_driver import Reply, call
from fastapi_app import guarded_router, service
from guarding import shop as psycopg_shop
from orm import Payment, Shop, orm_shop
from semel.core.model import Mode

pytestmark = pytest.mark.rule("W2")

ALICE = {"authorization": "alice"}


@pytest.fixture(params=["asyncpg", "psycopg"])
async def shop(request: pytest.FixtureRequest, pg_database: str) -> AsyncIterator[Shop]:
    async with orm_shop(pg_database, request.param) as opened:
        yield opened


@pytest.fixture(params=[Mode.ATOMIC, Mode.JOINED])
async def narrow(request: pytest.FixtureRequest, pg_database: str) -> AsyncIterator[Shop]:
    """One connection has to do for everything."""
    async with orm_shop(pg_database, "asyncpg", size=1, mode=request.param) as opened:
        yield opened


class Service:
    """An application with one route, whose dependencies share a session."""

    def __init__(self, shop: Shop, *, commits: bool = False, scope: Any = None) -> None:
        self.shop = shop
        self.runs = 0
        self.wanted = 1
        self.done: list[str] = []

        async def session() -> AsyncIterator[AsyncSession]:
            async with shop.session() as opened:
                yield opened
                if commits:
                    await opened.commit()

        self.session: Any = Depends(session, scope=scope)

        async def caller(
            authorization: str = Header(), session: AsyncSession = self.session
        ) -> str:
            """Look the caller up with the session that the endpoint gets, too."""
            query = select(Payment).where(Payment.what == f"user {authorization}")
            if (await session.scalars(query)).first() is None:
                raise HTTPException(401)
            return authorization

        self.api = guarded_router(shop.guard, caller)

    def route(self, endpoint: Any, **settings: Any) -> FastAPI:
        self.api.post("/payments", **settings)(endpoint)
        return service(self.api)

    async def sign_up(self, name: str = "alice") -> None:
        async with self.shop.session.begin() as session:
            session.add(Payment(what=f"user {name}"))

    async def revoke(self, name: str = "alice") -> None:
        async with self.shop.session.begin() as session:
            await session.execute(text(f"DELETE FROM payment WHERE what = 'user {name}'"))

    async def paid(self) -> list[str]:
        return [what for what in await self.shop.effects() if not what.startswith("user")]


async def pay(app: FastAPI, key: str = "k") -> Reply:
    return await call(app, key=key, headers=ALICE)


def committing(made: Service) -> Any:
    async def endpoint(session: AsyncSession = made.session) -> str:
        made.runs += 1
        session.add(Payment(what="a"))
        await session.commit()
        assert await made.paid() == []  # nothing is visible before the answer is settled
        return "paid"

    return endpoint


@pytest.mark.rule("R2")
async def test_authentication_by_the_endpoints_own_session(narrow: Shop) -> None:
    """All of it on the one connection there is; somebody revoked gets no replay."""
    made = Service(narrow)
    app = made.route(committing(made))
    assert ((await pay(app)).status, await made.paid()) == (401, [])
    await made.sign_up()
    replies = [await pay(app) for _ in range(2)]
    assert [(reply.status, reply.replayed) for reply in replies] == [(200, False), (200, True)]
    await made.revoke()
    assert (await pay(app)).status == 401
    await made.sign_up()
    assert (await pay(app)).replayed
    assert (await made.paid(), made.runs) == (["a"], 1)


@pytest.mark.rule("A2")
async def test_one_connection_for_each_request(shop: Shop) -> None:
    made = Service(shop)
    app = made.route(committing(made))
    await made.sign_up()
    most = [0]

    def note(*_: Any) -> None:
        most[0] = max(most[0], shop.engine.pool.checkedout())  # type: ignore[attr-defined]

    event.listen(shop.engine.sync_engine, "checkout", note)
    for replayed in (False, True):
        assert (await pay(app)).replayed is replayed
    assert most == [1]
    assert shop.engine.pool.checkedout() == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("scope", ["function", "request"])
async def test_a_dependency_that_commits_after_yield(narrow: Shop, scope: str) -> None:
    made = Service(narrow, commits=True, scope=scope)

    async def endpoint(session: AsyncSession = made.session) -> str:
        made.runs += 1
        session.add(Payment(what="a"))
        return "paid"

    app = made.route(endpoint)
    await made.sign_up()
    for replayed in (False, True):
        reply = await pay(app)
        assert (reply.status, reply.replayed) == (200, replayed)
    assert (await made.paid(), made.runs) == (["a"], 1)


async def test_a_session_that_nobody_commits_is_delivered_with_the_answer(shop: Shop) -> None:
    made = Service(shop)

    async def endpoint(session: AsyncSession = made.session) -> str:
        session.add(Payment(what="a"))
        await session.flush()
        return "paid"

    app = made.route(endpoint)
    await made.sign_up()
    assert (await pay(app)).status == 200
    assert (await pay(app)).replayed


@pytest.mark.rule("O2")
@pytest.mark.parametrize(
    ("raised", "scope", "flushed"),
    [
        *itertools.product([True], ["function", "request"], [True, False]),
        *itertools.product([False], ["function", "request"], [True, False]),
    ],
)
async def test_a_refusal_takes_the_effect_with_it(
    shop: Shop, raised: bool, scope: str, flushed: bool
) -> None:
    """However the session is committed: a stored 402 has no effect, and is replayed."""
    made = Service(shop, commits=True, scope=scope)

    async def endpoint(session: AsyncSession = made.session) -> Any:
        made.runs += 1
        session.add(Payment(what="never"))
        if flushed:
            await session.flush()
        if raised:
            raise HTTPException(402)
        return JSONResponse("declined", 402)

    app = made.route(endpoint)
    await made.sign_up()
    for replayed in (False, True):
        reply = await pay(app)
        assert (reply.status, reply.replayed) == (402, replayed)
    assert (await made.paid(), made.runs) == ([], 1)


@pytest.mark.rule("O2", "O6")
@pytest.mark.parametrize("status", [409, 500])
async def test_an_answer_that_is_not_stored_gives_everything_back(shop: Shop, status: int) -> None:
    made = Service(shop)

    async def endpoint(session: AsyncSession = made.session) -> str:
        made.runs += 1
        session.add(Payment(what=f"run {made.runs}"))
        await session.commit()
        if made.runs == 1:
            raise HTTPException(status)
        return "paid"

    app = made.route(endpoint)
    await made.sign_up()
    replies = [await pay(app) for _ in range(3)]
    assert [reply.status for reply in replies] == [status, 200, 200]
    assert await made.paid() == ["run 2"]


@pytest.mark.rule("O4")
@pytest.mark.parametrize("mode", [Mode.ATOMIC, Mode.JOINED])
async def test_a_commit_that_fails_is_503_and_no_task_runs(pg_database: str, mode: Mode) -> None:
    """A deferred constraint fails at the COMMIT, when the endpoint has long answered."""
    async with orm_shop(pg_database, "asyncpg", mode=mode) as shop:
        async with shop.engine.begin() as connection:
            await connection.execute(
                text(
                    "ALTER TABLE payment ADD CONSTRAINT later UNIQUE (once) "
                    "DEFERRABLE INITIALLY DEFERRED, DROP CONSTRAINT payment_once_key"
                )
            )
        made = Service(shop)

        async def endpoint(tasks: BackgroundTasks, session: AsyncSession = made.session) -> str:
            made.runs += 1
            tasks.add_task(made.done.append, "task")
            semel.current().after_commit(lambda: made.done.append("hook"))  # type: ignore[union-attr]
            session.add_all([Payment(what=what, once="x") for what in ("a", "b")[: made.wanted]])
            await session.commit()
            return "paid"

        made.wanted = 2
        app = made.route(endpoint)
        await made.sign_up()
        failed = await pay(app)
        assert (failed.status, failed.problem) == (503, "store-unavailable")
        assert (made.done, await made.paid()) == ([], [])
        made.wanted = 1
        replies = [await pay(app) for _ in range(2)]
        assert [(r.status, r.replayed) for r in replies] == [(200, False), (200, True)]
        assert (made.done, await made.paid(), made.runs) == (["hook", "task"], ["a"], 2)


@pytest.mark.rule("O4")
async def test_a_task_has_a_session_of_its_own(shop: Shop) -> None:
    made = Service(shop)

    async def note() -> None:
        assert await made.paid() == ["a"]
        async with shop.session.begin() as session:
            session.add(Payment(what="noted"))

    async def endpoint(tasks: BackgroundTasks, session: AsyncSession = made.session) -> None:
        session.add(Payment(what="a"))
        await session.commit()
        tasks.add_task(note)

    app = made.route(endpoint)
    await made.sign_up()
    for _ in range(2):
        assert (await pay(app)).status == 200
    assert await made.paid() == ["a", "noted"]


async def test_a_session_of_the_endpoints_own_making(shop: Shop) -> None:
    made = Service(shop)

    async def endpoint() -> None:
        async with shop.session.begin() as session:
            session.add(Payment(what="a"))
        assert await made.paid() == []

    app = made.route(endpoint)
    await made.sign_up()
    for replayed in (False, True):
        assert (await pay(app)).replayed is replayed
    assert await made.paid() == ["a"]


async def test_a_request_without_a_key_has_a_session_like_any_other(shop: Shop) -> None:
    made = Service(shop)

    @semel.options(required=False)
    async def endpoint(session: AsyncSession = made.session) -> None:
        session.add(Payment(what="a"))
        await session.commit()
        assert await made.paid() == ["a"]

    app = made.route(endpoint)
    await made.sign_up()
    assert (await call(app, headers=ALICE)).status == 200


@pytest.mark.rule("W1")
@pytest.mark.parametrize("mode", [Mode.ATOMIC, Mode.JOINED])
async def test_with_psycopg_itself(pg_database: str, mode: Mode) -> None:
    async with psycopg_shop(pg_database, mode=mode) as shop:
        api = guarded_router(shop.guard, semel.SHARED)
        runs: list[None] = []

        async def endpoint(fail: bool = False) -> str:  # noqa: FBT002 - a query parameter
            runs.append(None)
            await shop.guard.current().tx.execute("INSERT INTO effect (what) VALUES ('paid')")
            if fail:
                raise HTTPException(402)
            return "paid"

        api.post("/payments")(endpoint)
        app = service(api)
        for replayed in (False, True):
            for key, target, status in (
                ("a", "/payments", 200),
                ("b", "/payments?fail=1", 402),
            ):
                reply = await call(app, target=target, key=key)
                assert (reply.status, reply.replayed) == (status, replayed)
        assert (await shop.effects(), len(runs)) == (["paid"], 2)
