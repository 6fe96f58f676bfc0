"""Statements that are cut short, or come when their claim is over, leave nothing behind.

Sessions of one request share a connection: what one of them leaves on its way must
neither be committed nor meet the transaction of whoever has the connection next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import event, text

from orm import ON_FILE, ON_POSTGRES, PAID, Payment, Shop, orm_shop
from semel.errors import CommitFailedError, StoreUnavailableError, UsageError
from semel.guard import restore

INSERT = text("INSERT INTO payment (what) VALUES (:what)")
NAP = "SELECT pg_sleep(60)"
# `running` tells the test; the rest goes on until somebody interrupts it.
ENDLESS = (
    "INSERT INTO payment (what) WITH RECURSIVE n (i) AS"
    " (SELECT running() UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"
)


@pytest.fixture(params=[*ON_POSTGRES, *ON_FILE])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    """Open a shop whose engine has one connection."""
    url = str(tmp_path / "shop.db")
    if request.param in ON_POSTGRES:
        url = request.getfixturevalue("pg_database")
    async with orm_shop(url, request.param, size=1) as opened:
        yield opened


async def cut_short(shop: Shop, work: asyncio.Task[Any], running: Event) -> None:
    """Cancel a task while the database runs its statement."""
    async with asyncio.timeout(30):
        while not (running.is_set() or (not shop.on_file and await shop.query(NAPPING))):
            assert not work.done(), work.exception()
            await asyncio.sleep(0.001)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


NAPPING = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
    f" AND state = 'active' AND query = '{NAP}'"
)


async def told_when_running(shop: Shop) -> Event:
    """Have SQLite say when it runs a statement that does not end."""
    running = Event()
    if shop.on_file:
        await shop.engine.dispose()

        def tell() -> int:
            running.set()
            return 1

        event.listen(
            shop.engine.sync_engine,
            "connect",
            lambda one, _: one.create_function("running", 0, tell),
        )
    return running


@pytest.mark.rule("O5", "W2", "A2")
@pytest.mark.parametrize("by", ["session", "connection"])
async def test_a_statement_that_was_cut_short_takes_everything_with_it(shop: Shop, by: str) -> None:
    """The handler may swallow the time-out and go on: nothing of it is committed."""
    running = await told_when_running(shop)
    claim = await shop.claim()
    session = shop.session()
    session.add(Payment(what="before"))
    await session.flush()
    endless = text(ENDLESS if shop.on_file else NAP)
    executor = session if by == "session" else claim.tx
    await cut_short(shop, asyncio.create_task(executor.execute(endless)), running)

    with pytest.raises(StoreUnavailableError, match="cut short"):
        await claim.tx.execute(INSERT, {"what": "after"})
    await session.rollback()
    with pytest.raises(StoreUnavailableError, match="cut short"):
        await session.execute(INSERT, {"what": "after"})
    with pytest.raises(CommitFailedError) as failed:
        await claim.complete(PAID)
    assert failed.value.decision is None  # the key is free
    await session.close()
    assert await shop.effects() == []

    restore(None)
    claim = await shop.claim()
    async with shop.session() as fresh:
        fresh.add(Payment(what="again"))
        await fresh.commit()
    await claim.complete(PAID)
    assert await shop.effects() == ["again"]


@pytest.mark.rule("O5", "W2")
async def test_a_client_that_leaves_frees_the_key_at_once(shop: Shop) -> None:
    running = await told_when_running(shop)
    claim = await shop.claim()
    async with shop.session() as session:
        endless = text(ENDLESS if shop.on_file else NAP)
        await cut_short(shop, asyncio.create_task(session.execute(endless)), running)
    await claim.release()
    assert shop.names()[-1] == "released"
    restore(None)
    await (await shop.claim()).release()


@pytest.mark.rule("W2")
@pytest.mark.parametrize("shop", ["asyncpg", *ON_FILE], indirect=True)
async def test_what_comes_too_late_meets_nobody_elses_transaction(shop: Shop) -> None:
    """It had passed every check and waits for the connection when its claim is released."""
    claim = await shop.claim()
    await claim.tx.execute(INSERT, {"what": "never"})
    turn = claim.unit.wire._loan.pooled if shop.on_file else claim.unit.wire.pooled  # type: ignore[attr-defined]
    mutex = turn.dbapi_connection._execute_mutex
    await mutex.acquire()
    late = asyncio.create_task(claim.tx.execute(INSERT, {"what": "late"}))
    while not mutex._waiters:
        await asyncio.sleep(0)
    await claim.release()
    restore(None)
    other = await shop.claim("other")
    work = asyncio.create_task(shop.pay("other"))
    while not work.done() and len(mutex._waiters) < 2:
        await asyncio.sleep(0)
    mutex.release()
    await work
    with suppress(Exception):
        await late
    await other.complete(PAID)
    assert await shop.effects() == ["other"]


@pytest.mark.rule("W2")
async def test_a_session_can_not_give_the_claims_connection_away(shop: Shop) -> None:
    claim = await shop.claim()
    async with shop.session() as session:
        connection = await session.connection()
        await connection.execute(INSERT, {"what": "never"})
        await connection.close()
        assert shop.engine.pool.checkedout() == 1  # type: ignore[attr-defined]
    async with shop.session() as session:
        raw = await (await session.connection()).get_raw_connection()
        with pytest.raises(UsageError, match="can not be detached"):
            raw.detach()
        session.add(Payment(what="a"))
        await session.commit()
    await claim.complete(PAID)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("A6", "O8")
@pytest.mark.parametrize("driver", ON_POSTGRES)
async def test_connections_that_died_are_not_lent_again(pg_database: str, driver: str) -> None:
    """More of them than one acquire has tries: the next request finds living ones."""
    async with orm_shop(pg_database, driver) as shop:
        async with AsyncExitStack() as stack:
            for _ in range(5):
                await stack.enter_async_context(shop.engine.connect())
        await shop.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        with pytest.raises(StoreUnavailableError):
            await shop.claim()
        claim = await shop.claim()
        await shop.pay("a")
        await claim.complete(PAID)
        assert await shop.effects() == ["a"]


@pytest.mark.rule("W2", "A6")
async def test_the_isolation_level_is_the_engines(shop: Shop) -> None:
    """To change it here would have no effect, or end the claim's transaction."""
    claim = await shop.claim()
    async with shop.session() as session:
        with pytest.raises(UsageError, match="where the engine is made"):
            await session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
    with pytest.raises(UsageError, match="where the engine is made"):
        await claim.tx.execution_options(isolation_level="AUTOCOMMIT")
    await claim.release()
