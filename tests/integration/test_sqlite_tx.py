"""What a handler can do on its connection to SQLite, and what not."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from claims import acquire, new_claim, settle
from semel.claim import AsyncClaim
from semel.core.fingerprint import RequestImage
from semel.core.model import Execute
from semel.errors import (
    ClaimClosedError,
    StoreUnavailableError,
    UsageError,
)
from semel.guard import AsyncGuard
from semel.sqlite import AsyncStore
from semel.sqlite.blocking import Connection
from semel.store.programs import abandon, look
from semel.store.statement import BEGIN
from sqlite_files import effects, insert, made, until, write_and_settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semel.store.statement import Steps


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncStore]:
    store = await made(tmp_path / "shop.db")
    yield store
    await store.aclose()


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[AsyncStore]:
    """Give a store that waits for nobody and has one connection."""
    store = await made(tmp_path / "hasty.db", size=1, busy_timeout=0.05)
    yield store
    await store.aclose()


@pytest.mark.rule("W2")
@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "commit transaction",
        "  -- done\n\tEND;",
        "/* a */ /* b */BEGIN IMMEDIATE",
        ";;\ufeffROLLBACK",
        "ROLLBACK TRANSACTION -- TO here",
        "/* unterminated */ rollback /* TO",
    ],
)
async def test_the_application_can_not_end_or_begin_the_transaction(
    store: AsyncStore, sql: str
) -> None:
    unit = store.unit()
    for _ in range(2):  # as the first statement, and as a later one
        with pytest.raises(UsageError, match="SAVEPOINT"):
            await unit.tx.execute(sql)
        with pytest.raises(UsageError):
            await unit.tx.executemany(sql, [])
        await insert(unit, 1)
        assert unit.begun
        assert not unit.escaped
    await unit.close()
    async with store.connection() as connection:
        with pytest.raises(UsageError):
            await connection.execute(sql)


@pytest.mark.rule("W2")
async def test_savepoints_belong_to_the_application(store: AsyncStore) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new, transaction=True))
    await insert(unit, 1)
    for n, sql in enumerate(("ROLLBACK TO part", "rollback /* */ transaction to savepoint part")):
        await unit.tx.execute("SAVEPOINT part")
        await insert(unit, 2 + n)
        await unit.tx.execute(sql)
        await unit.tx.execute("RELEASE part")
    await unit.run(settle(new))
    assert await effects(store) == [1]


@pytest.mark.rule("O2")
@pytest.mark.parametrize(
    ("before", "spoiling"),
    [
        ("SELECT 1", "INSERT OR ROLLBACK INTO effect (n) VALUES (-1)"),
        ("PRAGMA max_page_count = 1", "INSERT INTO effect VALUES (1, zeroblob(1000000))"),
    ],
    ids=["conflict clause", "full disk"],
)
async def test_a_transaction_that_sqlite_rolled_back_is_over(
    store: AsyncStore, before: str, spoiling: str
) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new, transaction=True))
    await insert(unit, 1)
    await unit.tx.execute(before)
    with pytest.raises(sqlite3.Error):
        await unit.tx.execute(spoiling)
    assert unit.escaped
    assert not unit.begun
    with pytest.raises(ClaimClosedError):
        await insert(unit, 2)
    await unit.close()
    assert unit.escaped
    await write_and_settle(store, 3)
    assert await effects(store) == [3]


@pytest.mark.parametrize("ending", ["settled", "abandoned", "closed"])
async def test_nothing_runs_after_the_end(store: AsyncStore, ending: str) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new, transaction=True))
    await insert(unit, 1)
    if ending == "settled":
        await unit.run(settle(new))
    elif ending == "abandoned":
        await unit.run(abandon(begun=unit.begun))
    else:
        await unit.close()
        with pytest.raises(ClaimClosedError):
            await unit.run(look(new.identity))
    with pytest.raises(ClaimClosedError):
        await insert(unit, 2)
    with pytest.raises(ClaimClosedError):
        await unit.tx.executemany("INSERT INTO effect (n) VALUES (?)", [[2]])
    assert not unit.escaped
    assert await effects(store) == ([1] if ending == "settled" else [])


async def test_errors_of_the_application_reach_it_unchanged(store: AsyncStore) -> None:
    unit = store.unit()
    with pytest.raises(sqlite3.OperationalError, match="no such table: nowhere"):
        await unit.tx.execute("SELECT * FROM nowhere")
    with pytest.raises(sqlite3.IntegrityError):
        await insert(unit, -1)
    with pytest.raises((sqlite3.Warning, sqlite3.ProgrammingError)):
        await unit.tx.execute("SELECT 1; SELECT 2")
    await insert(unit, 1)
    assert await unit.tx.execute("SELECT n FROM effect") == [(1,)]
    assert unit.begun
    await unit.close()


async def test_two_first_statements_at_once_share_one_transaction(store: AsyncStore) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new, transaction=True))
    await asyncio.gather(insert(unit, 1), insert(unit, 2))
    found = await unit.run(look(new.identity))
    assert found is not None
    await unit.run(settle(new))
    assert await effects(store) == [1, 2]


async def test_many_rows_are_written_all_or_none(store: AsyncStore) -> None:
    sql = "INSERT INTO effect (n) VALUES (:n)"
    async with store.connection() as connection:
        assert await connection.executemany(sql, ({"n": n} for n in (1, 2))) == 2
        with pytest.raises(sqlite3.IntegrityError):
            await connection.executemany(sql, [{"n": 3}, {"n": -1}])
    unit = store.unit()
    assert await unit.tx.executemany(sql, [{"n": 4}]) == 1
    await unit.close()
    assert await effects(store) == [1, 2]


async def test_a_lent_connection_is_given_back_clean(hasty: AsyncStore) -> None:
    async with hasty.connection() as connection:
        await connection.execute("INSERT INTO effect (n) VALUES (1)")
        await connection.execute("SAVEPOINT open")
        await connection.execute("INSERT INTO effect (n) VALUES (2)")
    with pytest.raises(UsageError, match="given back"):
        await connection.execute("SELECT 1")
    assert await effects(hasty) == [1]


async def test_a_connection_in_doubt_is_not_lent_again(hasty: AsyncStore) -> None:
    async with hasty.connection() as connection:
        await connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailableError, match="writable"):
        await hasty.run(acquire(new_claim(), transaction=True))
    assert await hasty.run(acquire(new_claim(), transaction=True)) == Execute(token=1)


async def test_a_connection_that_can_not_roll_back_is_closed(
    hasty: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Connection) -> None:
        raise sqlite3.OperationalError("made up")

    unit = hasty.unit()
    await insert(unit, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "rollback", fail)
        await unit.close()
    await write_and_settle(hasty, 2)
    assert await effects(hasty) == [2]


async def test_a_transaction_that_a_program_left_open_carries_the_effect(
    store: AsyncStore,
) -> None:
    def begin() -> Steps[None]:
        yield BEGIN

    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new, transaction=True))
    await unit.run(begin())
    await insert(unit, 1)
    await unit.run(settle(new))
    assert await effects(store) == [1]


@pytest.mark.parametrize("journal", ["delete", "memory"])
def test_a_file_without_write_ahead_log_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    monkeypatch.setattr(Connection, "execute", lambda *_: [(journal,)])
    with (
        pytest.raises(StoreUnavailableError, match="local disk"),
        AsyncStore(tmp_path / "shop.db").link(),
    ):
        pass


def test_a_sqlite_without_what_the_statements_need_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with (
        pytest.raises(UsageError, match=r"3\.37 or newer"),
        AsyncStore(tmp_path / "shop.db").link(),
    ):
        pass


ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "INSERT INTO effect (n) SELECT i FROM n LIMIT 1000000000"
)


@pytest.mark.rule("O5", "O6")
async def test_a_client_that_leaves_during_a_write_gives_the_key_back(tmp_path: Path) -> None:
    """SQLite ends the transaction by itself when a write is interrupted: nobody committed it."""
    store = await made(tmp_path / "shop.db")
    async with AsyncGuard(store) as guard:
        image = RequestImage("POST", "/pay", b"", (), b"500")
        began = asyncio.Event()

        async def handler() -> None:
            claim = await guard.acquire("shop", "k", guard.fingerprint(image))
            assert isinstance(claim, AsyncClaim)
            try:
                await claim.tx.execute("INSERT INTO effect (n) VALUES (1)")
                began.set()
                await claim.tx.execute(ENDLESS)
            finally:
                await claim.release()

        task = asyncio.create_task(handler())
        await began.wait()
        log = tmp_path / "shop.db-wal"
        before = log.stat().st_size
        await until(lambda: log.stat().st_size > before + 1_000_000)  # in the middle of it
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = await guard.acquire("shop", "k", guard.fingerprint(image))
        assert isinstance(again, AsyncClaim)
        await again.release()
        assert await effects(store) == []
