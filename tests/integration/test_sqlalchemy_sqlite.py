"""SQLAlchemy on a file of SQLite: how the effect's transaction begins and ends.

It begins with BEGIN IMMEDIATE at the handler's first statement, whatever the engine's
owner has chosen, and nothing but the claim's settlement ends it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from orm import DECLINED, FAILED, ON_FILE, PAID, Payment, Shop, orm_shop
from semel.claim import AsyncClaim
from semel.core.model import Answer, InDoubt
from semel.errors import (
    ClaimClosedError,
    ClaimLostError,
    CommitFailedError,
    StoreConflictError,
    StoreUnavailableError,
    UsageError,
)
from semel.guard import restore
from semel.sqlalchemy.errors import mapped

INSERT = text("INSERT INTO payment (what) VALUES (:what)")


@pytest.fixture(params=ON_FILE)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    async with orm_shop(str(tmp_path / "shop.db"), request.param) as opened:
        yield opened


# How the effect begins.


@pytest.mark.rule("A2", "A9")
async def test_it_begins_at_the_first_statement(shop: Shop) -> None:
    """Until then nobody is kept waiting, and no connection is held."""
    claim = await shop.claim()
    session = shop.session()
    session.add(Payment(what="a"))
    assert shop.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    await shop.query("BEGIN IMMEDIATE")
    assert not claim.touched
    await session.flush()
    assert claim.touched
    assert shop.engine.pool.checkedout() == 1
    with pytest.raises(sqlite3.OperationalError, match="locked") as locked:
        sqlite3.connect(shop.url, timeout=0).execute("BEGIN IMMEDIATE")
    assert locked.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
    await session.commit()
    await claim.complete(PAID)
    await session.close()
    await shop.query("BEGIN IMMEDIATE")
    assert await shop.effects() == ["a"]


@pytest.mark.rule("A2", "A4")
async def test_a_read_begins_it_too(shop: Shop) -> None:
    """What the handler read can not have been changed when it writes."""
    claim = await shop.claim()
    async with shop.session() as session:
        assert (await session.scalars(select(Payment))).all() == []
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            sqlite3.connect(shop.url, timeout=0).execute("DELETE FROM payment")
    await claim.release()


@pytest.mark.rule("A9")
async def test_writers_of_a_process_queue_without_a_connection(shop: Shop) -> None:
    """First come, first served; only the one in front holds a connection of the engine's."""
    claims = [await shop.claim(str(number)) for number in range(9)]

    async def handle(number: int) -> None:
        restore(claims[number])
        await shop.pay(str(number))
        await claims[number].complete(PAID)

    restore(claims[0])
    await shop.pay("0")
    tasks = [asyncio.create_task(handle(number)) for number in range(1, 9)]
    queue = writers(shop)
    async with asyncio.timeout(30):
        while len(queue._waiters or ()) < len(tasks):
            await asyncio.sleep(0)
    assert shop.engine.pool.checkedout() == 1  # type: ignore[attr-defined]
    await claims[0].complete(PAID)
    await asyncio.gather(*tasks)
    assert await shop.effects() == [str(number) for number in range(9)]


def writers(shop: Shop) -> asyncio.Lock:
    """Return what the writers of this process queue on."""
    queue: asyncio.Lock = shop.guard.store._store._file._pool._writers  # type: ignore[attr-defined]
    return queue


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Shop]:
    """Open a shop that waits for nobody, while its engine's connections would wait for long."""
    async with orm_shop(str(tmp_path / "shop.db"), "aiosqlite", busy_timeout=0.05) as opened:
        await opened.engine.dispose()

        @event.listens_for(opened.engine.sync_engine, "connect")
        def on_connect(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA busy_timeout = 60000")

        yield opened


@pytest.mark.rule("A6", "A2")
async def test_another_process_that_writes_for_too_long(hasty: Shop) -> None:
    """Nothing took effect, the connection is given back, and the next try succeeds."""
    claim = await hasty.claim()
    with closing(sqlite3.connect(hasty.url, isolation_level=None)) as outside:
        outside.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(30):
            with pytest.raises(StoreConflictError, match="locked") as busy:
                await hasty.pay("a")
        assert isinstance(busy.value.__cause__, sqlite3.OperationalError)
    assert hasty.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    async with hasty.engine.connect() as connection:
        assert await connection.scalar(text("PRAGMA busy_timeout")) == 60_000
    await hasty.pay("b")
    await claim.complete(PAID)
    assert await hasty.effects() == ["b"]


@pytest.mark.rule("A6", "A9")
async def test_a_writer_of_this_process_that_takes_too_long(hasty: Shop) -> None:
    second = await hasty.claim("second")
    first = await hasty.claim("first")
    await hasty.pay("first")
    restore(second)
    with pytest.raises(StoreConflictError, match="other writers of this process"):
        await hasty.pay("second")
    await first.complete(PAID)
    await hasty.pay("second")
    await second.complete(PAID)
    assert await hasty.effects() == ["first", "second"]


@pytest.mark.rule("S4", "A6")
async def test_no_connection_to_be_had(tmp_path: Path) -> None:
    async with orm_shop(str(tmp_path / "shop.db"), "aiosqlite", size=1) as shop:
        shop.engine.pool._timeout = 0.05  # type: ignore[attr-defined]
        claim = await shop.claim()
        async with shop.engine.connect():
            with pytest.raises(StoreUnavailableError, match="no database connection"):
                await shop.pay("a")
        await shop.pay("a")
        await claim.complete(PAID)
        assert await shop.effects() == ["a"]


@pytest.mark.rule("O5", "A9")
async def test_a_handler_that_is_cancelled_while_it_waits(shop: Shop) -> None:
    """For another process: nothing is left in the queue or on the connection."""
    claim = await shop.claim()
    with closing(sqlite3.connect(shop.url, isolation_level=None)) as outside:
        outside.execute("BEGIN IMMEDIATE")
        work = asyncio.create_task(shop.pay("never"))
        async with asyncio.timeout(30):
            while shop.engine.pool.checkedout() == 0:  # type: ignore[attr-defined]
                await asyncio.sleep(0.001)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert shop.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    await claim.release()
    restore(None)
    claim = await shop.claim()
    await shop.pay("a")
    await claim.complete(PAID)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("O7", "O5")
async def test_a_session_that_waits_while_its_claim_is_released(shop: Shop) -> None:
    """Its turn comes too late; neither keeps the other waiting for ever."""
    claim = await shop.claim()
    queue = writers(shop)
    await queue.acquire()
    work = asyncio.create_task(shop.pay("never"))
    while not queue._waiters:
        await asyncio.sleep(0)
    release = asyncio.create_task(claim.release())
    await asyncio.sleep(0)
    queue.release()
    async with asyncio.timeout(5):
        await asyncio.wait({work, release})
    assert shop.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert await shop.effects() == []
    assert shop.names() == ["released"]
    restore(None)
    claim = await shop.claim()
    await shop.pay("a")
    await claim.complete(PAID)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("O7", "O5")
async def test_a_statement_that_waits_while_its_unit_is_closed(shop: Shop) -> None:
    queue, unit = writers(shop), shop.guard.store.unit()
    await queue.acquire()
    work = asyncio.create_task(unit.tx.execute(INSERT, {"what": "never"}))
    while not queue._waiters:
        await asyncio.sleep(0)
    await unit.close()
    queue.release()
    with pytest.raises(ClaimClosedError):
        await work
    assert shop.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert not queue.locked()


# How it ends.


@pytest.mark.rule("W2")
@pytest.mark.parametrize(
    "sql",
    ["BEGIN", "begin immediate", " /* now */ COMMIT", "END", "ROLLBACK", ";rollback transaction"],
)
async def test_the_ends_of_the_transaction_are_refused_as_text(shop: Shop, sql: str) -> None:
    claim = await shop.claim()
    async with shop.session() as session:
        session.add(Payment(what="a"))
        await session.flush()
        with pytest.raises(UsageError, match="on a connection of Semel's"):
            await session.execute(text(sql))
        with pytest.raises(UsageError, match="on a connection of Semel's"):
            await claim.tx.exec_driver_sql(sql)
        await session.commit()
    await claim.complete(PAID)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("W2")
async def test_savepoints_as_text_are_the_handlers(shop: Shop) -> None:
    claim = await shop.claim()
    for sql in ("SAVEPOINT mine", "INSERT INTO payment (what) VALUES ('never')"):
        await claim.tx.execute(text(sql))
    for sql in ("ROLLBACK TO mine", "RELEASE mine"):
        await claim.tx.execute(text(sql))
    await claim.tx.execute(INSERT, [{"what": "a"}, {"what": "b"}])
    await claim.complete(PAID)
    assert await shop.effects() == ["a", "b"]


@pytest.mark.rule("W2")
async def test_the_drivers_own_connection_is_not_to_be_had(shop: Shop) -> None:
    """Its `commit()` would part effect and answer."""
    claim = await shop.claim()
    with pytest.raises(UsageError, match="run one first"):
        (await claim.tx.get_raw_connection()).info  # noqa: B018 - it is looked up
    async with shop.session() as session:
        raw = await (await session.connection()).get_raw_connection()
        for name in ("driver_connection", "dbapi_connection"):
            with pytest.raises(UsageError, match="use the session, or claim"):
                getattr(raw, name)
    await claim.release()


def behind_its_back(claim: AsyncClaim[Any], *statements: str) -> None:
    """Run statements on the claim's connection, out of Semel's sight."""
    raw = claim.unit.wire._loan._thread.raw  # type: ignore[attr-defined]
    for sql in statements:
        raw.execute(sql)


@pytest.mark.rule("W2", "A5")
@pytest.mark.parametrize("answer", [PAID, DECLINED, FAILED], ids=["paid", "declined", "failed"])
async def test_a_commit_out_of_sight_leaves_the_key_in_doubt(shop: Shop, answer: Answer) -> None:
    claim = await shop.claim()
    await shop.pay("a")
    behind_its_back(claim, "COMMIT")
    with pytest.raises(ClaimClosedError):
        await shop.pay("never")
    with pytest.raises(ClaimClosedError, match="outside Semel"):
        await claim.tx.execute(INSERT, {"what": "never"})
    with pytest.raises(CommitFailedError) as failed:
        await claim.complete(answer)
    assert isinstance(failed.value.decision, InDoubt)
    restore(None)
    assert isinstance(await shop.acquire(), InDoubt)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("W2", "A5")
async def test_another_transaction_is_not_taken_for_the_claims(shop: Shop) -> None:
    claim = await shop.claim()
    await shop.pay("a")
    behind_its_back(claim, "COMMIT", "BEGIN IMMEDIATE", "DELETE FROM payment")
    with pytest.raises(CommitFailedError) as failed:
        await claim.complete(PAID)
    assert isinstance(failed.value.__cause__, ClaimLostError)
    assert isinstance(failed.value.decision, InDoubt)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("W2", "A5")
async def test_sqlite_rolls_back_by_itself(shop: Shop) -> None:
    """What comes afterwards is refused, instead of being committed on its own."""
    claim = await shop.claim()
    await shop.pay("never")
    with pytest.raises(IntegrityError):
        await claim.tx.execute(text("INSERT OR ROLLBACK INTO payment (what) VALUES (NULL)"))
    with pytest.raises(ClaimClosedError, match="SQLite itself"):
        await claim.tx.execute(INSERT, {"what": "never"})
    with pytest.raises(CommitFailedError):
        await claim.complete(PAID)
    assert await shop.effects() == []


@pytest.mark.rule("W2", "A5")
async def test_what_waits_for_a_transaction_that_ends_is_not_committed_alone(shop: Shop) -> None:
    """It had passed every check: Python begins a transaction for it, and nobody commits that."""
    claim = await shop.claim()
    await shop.pay("never")
    mutex = claim.unit.wire._loan.pooled.dbapi_connection._execute_mutex  # type: ignore[attr-defined]
    async with mutex:
        late = asyncio.create_task(claim.tx.execute(INSERT, {"what": "late"}))
        while not mutex._waiters:
            await asyncio.sleep(0)
        behind_its_back(claim, "ROLLBACK")
    await late
    with pytest.raises(CommitFailedError) as failed:
        await claim.complete(PAID)
    assert isinstance(failed.value.decision, InDoubt)
    assert await shop.effects() == []


@pytest.mark.rule("O2", "W2")
async def test_an_error_that_was_swallowed_spoils_nothing(shop: Shop) -> None:
    """A statement that fails leaves this database's transaction as it was."""
    claim = await shop.claim()
    async with shop.session() as session:
        session.add(Payment(what="a"))
        await session.flush()
        with pytest.raises(DBAPIError):
            await session.execute(text("SELECT nonsense"))
        await session.commit()
    await claim.complete(PAID)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("A2", "A4")
async def test_a_claim_that_was_taken_over_commits_nothing(shop: Shop) -> None:
    claim = await shop.claim()
    await shop.query("UPDATE semel_claim SET owner = randomblob(16)")
    await shop.pay("never")
    with pytest.raises(CommitFailedError):
        await claim.complete(PAID)
    assert await shop.effects() == []


@pytest.mark.rule("A6", "S4")
def test_errors_are_told_apart_by_their_code() -> None:
    for code, expected in (
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreConflictError),
        (sqlite3.SQLITE_LOCKED, StoreConflictError),
        (sqlite3.SQLITE_FULL, StoreUnavailableError),
    ):
        cause = sqlite3.OperationalError("some text")
        cause.sqlite_errorcode = code
        wrapped = DBAPIError.instance(None, None, cause, sqlite3.Error)
        with pytest.raises(expected, match="the database"), mapped():
            raise wrapped
