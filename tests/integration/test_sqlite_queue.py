"""Who waits for the file of SQLite, and what a cancellation leaves behind: nothing."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from claims import acquire, new_claim, settle
from semel.errors import (
    ClaimClosedError,
    StoreConflictError,
    StoreUnavailableError,
    UsageError,
)
from semel.sqlite import AsyncStore
from semel.sqlite.worker import Worker
from semel.store.programs import look
from semel.store.schema import raw
from semel.store.statement import BEGIN
from sqlite_files import effects, insert, made, until, write_and_settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from semel.sqlite import AsyncUnit
    from semel.store.statement import Steps

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


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


def is_running(unit: AsyncUnit) -> bool:
    return unit._loan is not None and unit._loan.worker._stop is not None


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
connection.close()
print("free", flush=True)
sys.stdin.readline()
"""


@contextmanager
def other_process(path: str) -> Iterator[Callable[[], None]]:
    """Lock the file from another process; what is yielded frees it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, os.fspath(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    def free() -> None:
        stdin.write("\n")
        stdin.flush()
        assert stdout.readline() == "free\n"

    with process:
        assert stdout.readline() == "locked\n"
        yield free
        process.kill()


@pytest.mark.rule("A9")
async def test_writers_queue_first_come_first_served_and_hold_no_connection(
    tmp_path: Path,
) -> None:
    store = await made(tmp_path / "shop.db", size=2)
    first = store.unit()
    await insert(first, 100)

    async def write(n: int) -> None:
        await write_and_settle(store, 100 - n)

    tasks: list[asyncio.Task[None]] = []
    for n in range(1, 9):
        tasks.append(asyncio.create_task(write(n)))
        await asyncio.sleep(0)  # runs until it waits in the queue
    assert await effects(store) == []  # a reader finds the other connection free
    assert not any(task.done() for task in tasks)

    await first.close()
    await asyncio.gather(*tasks)
    assert await effects(store) == list(range(99, 91, -1))
    await store.aclose()


@pytest.mark.rule("A9")
async def test_a_writer_that_waited_too_long_gives_up_without_harm(hasty: AsyncStore) -> None:
    first, second = hasty.unit(), hasty.unit()
    await insert(first, 1)
    with pytest.raises(StoreConflictError, match="keep the handlers' transactions short"):
        await insert(second, 2)
    assert not second.begun
    await first.close()
    await insert(second, 2)
    await second.close()


async def test_a_reader_that_finds_no_connection_says_what_to_do(hasty: AsyncStore) -> None:
    unit = hasty.unit()
    await insert(unit, 1)
    with pytest.raises(StoreUnavailableError, match="larger size"):
        await hasty.run(look(new_claim().identity), writes=False)
    await unit.close()
    await hasty.run(look(new_claim().identity), writes=False)


async def test_a_writer_that_finds_no_connection_leaves_the_queue(hasty: AsyncStore) -> None:
    unit = hasty.unit()
    async with hasty.connection() as connection:
        await connection.execute("SELECT 1")
        with pytest.raises(StoreUnavailableError):
            await insert(unit, 1)
    await insert(unit, 1)
    await unit.close()


async def test_a_writer_cancelled_in_the_queue_leaves_its_place(store: AsyncStore) -> None:
    first, second = store.unit(), store.unit()
    await insert(first, 1)
    waiting = asyncio.create_task(insert(second, 2))
    await asyncio.sleep(0)
    await cancelled(waiting)
    await first.close()
    await second.close()
    await write_and_settle(store, 3)
    assert await effects(store) == [3]


@pytest.mark.rule("O5")
async def test_a_statement_that_is_cancelled_has_ended_before_anything_else_runs(
    hasty: AsyncStore,
) -> None:
    unit = hasty.unit()
    await insert(unit, 1)
    task = asyncio.create_task(unit.tx.execute(ENDLESS))
    await until(lambda: is_running(unit))
    await cancelled(task)
    assert not is_running(unit)
    assert unit.begun
    await unit.close()
    await write_and_settle(hasty, 2)
    assert await effects(hasty) == [2]


@pytest.mark.rule("O5")
async def test_a_program_that_is_cancelled_leaves_no_transaction_and_no_lock(
    hasty: AsyncStore,
) -> None:
    def endless() -> Steps[None]:
        yield BEGIN
        yield raw("INSERT INTO effect (n) VALUES (1)")
        yield raw(ENDLESS)

    unit = hasty.unit()
    task = asyncio.create_task(unit.run(endless()))
    await until(lambda: is_running(unit))
    await cancelled(task)
    assert unit.begun
    await unit.close()

    (worker,) = hasty._pool._idle
    task = asyncio.create_task(hasty.run(endless()))
    await until(lambda: worker._stop is not None)
    await cancelled(task)
    await write_and_settle(hasty, 2)
    assert await effects(hasty) == [2]


@pytest.mark.rule("O5")
async def test_a_close_that_is_cancelled_still_closes(hasty: AsyncStore) -> None:
    unit = hasty.unit()
    await insert(unit, 1)
    closing = asyncio.create_task(unit.close())
    await asyncio.sleep(0)
    await cancelled(closing)
    assert not unit.begun
    await write_and_settle(hasty, 2)
    assert await effects(hasty) == [2]


async def test_closing_ends_a_statement_that_another_task_left_running(hasty: AsyncStore) -> None:
    unit = hasty.unit()
    stray = asyncio.create_task(unit.tx.execute(ENDLESS))
    await until(lambda: is_running(unit))
    await unit.close()
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        await stray
    await write_and_settle(hasty, 2)


async def test_cancelling_twice_is_no_shorter(
    hasty: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, interrupt = hasty.unit(), Worker.interrupt
    asked: list[Worker] = []
    monkeypatch.setattr(Worker, "interrupt", lambda worker: asked.append(worker))  # noqa: PLW0108
    task = asyncio.create_task(unit.tx.execute(ENDLESS))
    await until(lambda: is_running(unit))
    for n in (1, 2):
        task.cancel()
        await until(lambda n=n: len(asked) >= n)  # type: ignore[misc]
        assert not task.done()
        assert is_running(unit)
    monkeypatch.setattr(Worker, "interrupt", interrupt)
    await cancelled(task)
    await unit.close()
    await write_and_settle(hasty, 2)


async def test_work_that_has_not_started_is_dropped_and_disturbs_nobody(hasty: AsyncStore) -> None:
    ran: list[str] = []
    gate = threading.Event()
    (worker,) = hasty._pool._idle
    first = asyncio.create_task(worker.hop(lambda _: gate.wait(30)))
    second = asyncio.create_task(worker.hop(lambda _: ran.append("second")))
    await until(lambda: worker._stop is not None)
    await cancelled(second)
    gate.set()
    assert await first is True
    assert ran == []


async def test_who_waits_for_a_connection_of_a_closed_store_is_told(tmp_path: Path) -> None:
    store = await made(tmp_path / "shop.db", size=1)
    async with store.connection() as connection:
        await connection.execute("SELECT 1")
        waiting = asyncio.create_task(effects(store))
        await asyncio.sleep(0)
        await store.aclose()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await waiting


async def test_a_unit_closed_while_it_waits_never_begins(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.sqlite.unit.INSIST", 0)
    first, second = store.unit(), store.unit()
    await insert(first, 1)
    waiting = asyncio.create_task(insert(second, 2))
    await asyncio.sleep(0)
    closing = asyncio.create_task(second.close())
    for _ in range(9):  # it looks more than once
        await asyncio.sleep(0)
    await first.close()
    await closing
    with pytest.raises(ClaimClosedError):
        await waiting
    await write_and_settle(store, 3)


@pytest.mark.rule("A6")
async def test_while_another_process_writes_nothing_begins(tmp_path: Path) -> None:
    store = await made(tmp_path / "shop.db", busy_timeout=0.3)
    unit, new = store.unit(), new_claim()
    with other_process(store.path) as free:
        with pytest.raises(StoreConflictError, match="locked"):
            await insert(unit, 1)
        assert not unit.begun
        before = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="colliding"):
            await store.run(acquire(new, transaction=True))
        assert time.monotonic() - before < 7 * 0.3  # the tries share one patience
        free()
        await insert(unit, 1)
    await unit.close()
    await store.aclose()


@pytest.mark.rule("A6")
async def test_a_writer_waits_for_another_process_and_then_begins(store: AsyncStore) -> None:
    unit = store.unit()
    with other_process(store.path) as free:
        waiting = asyncio.create_task(insert(unit, 1))
        await until(lambda: is_running(unit))
        assert not waiting.done()
        free()
        await waiting
    assert unit.begun
    await unit.close()


@pytest.mark.rule("O5")
async def test_a_writer_cancelled_while_another_process_writes_stops_waiting(
    tmp_path: Path,
) -> None:
    store = await made(tmp_path / "shop.db", size=1, busy_timeout=60.0)
    unit = store.unit()
    with other_process(store.path) as free:
        waiting = asyncio.create_task(insert(unit, 1))
        await until(lambda: is_running(unit))
        await cancelled(waiting)
        await unit.close()
        free()
        await write_and_settle(store, 2)
    assert await effects(store) == [2]
    await store.aclose()


@pytest.mark.rule("A9")
async def test_a_program_is_one_hop_and_so_is_a_statement(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hops: list[str] = []
    hop = Worker._in_thread

    def counted(self: Worker, *args: object, **kwargs: object) -> object:
        hops.append(threading.current_thread().name)
        return hop(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "_in_thread", counted)
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new, transaction=True))
    await insert(unit, 1)
    await insert(unit, 2)
    await unit.run(settle(new))
    await unit.close()
    assert len(hops) == 4
    assert {name.rsplit("_", 1)[0] for name in hops} == {"semel-sqlite"}


async def test_there_are_no_more_threads_than_connections(tmp_path: Path) -> None:
    others = threads()
    store = await made(tmp_path / "shop.db", size=3)
    await asyncio.gather(*(effects(store) for _ in range(30)))
    assert 1 <= len(threads() - others) <= 3
    await asyncio.gather(*(write_and_settle(store, n) for n in range(1, 11)))
    assert len(threads() - others) <= 3
    await store.aclose()
    assert threads() <= others
    assert os.listdir(tmp_path) == ["shop.db"]  # noqa: PTH208 - and no log is left


def threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("semel-sqlite")}


async def test_a_closed_store_refuses_until_it_is_opened_again(tmp_path: Path) -> None:
    others = threads()
    store = await made(tmp_path / "shop.db")
    unit = store.unit()
    await insert(unit, 1)
    await store.aclose()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await effects(store)
    await unit.close()  # its connection is closed now
    await until(lambda: threads() <= others)
    await store.open()
    assert await effects(store) == []
    await store.aclose()


def test_one_store_serves_one_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    store = AsyncStore(path)
    assert asyncio.run(store.migrate())
    with pytest.raises(UsageError, match="one event loop"):
        asyncio.run(store.check())

    async def again() -> None:
        await store.aclose()
        await store.open()
        await store.check()
        await store.aclose()

    asyncio.run(again())
