"""A store in a file of SQLite, with a table of effects, for the tests of that driver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from claims import acquire, new_claim, settle
from semel.sqlite import AsyncStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from semel.sqlite import AsyncUnit


async def made(path: Path, *, size: int = 4, busy_timeout: float = 10.0) -> AsyncStore:
    store = AsyncStore(path, size=size, busy_timeout=busy_timeout)
    await store.migrate()
    async with store.connection() as connection:
        await connection.execute("CREATE TABLE effect (n INTEGER CHECK (n > 0), big BLOB) STRICT")
    return store


async def effects(store: AsyncStore) -> list[int]:
    async with store.connection() as connection:
        return [n for (n,) in await connection.execute("SELECT n FROM effect ORDER BY rowid")]


async def insert(unit: AsyncUnit, n: int) -> None:
    await unit.tx.execute("INSERT INTO effect (n) VALUES (?)", [n])


async def write_and_settle(store: AsyncStore, n: int) -> None:
    """Show that a writer gets through: no lock, no connection was lost."""
    new, unit = new_claim(f"key {n}"), store.unit()
    await unit.run(acquire(new, transaction=True))
    await insert(unit, n)
    await unit.run(settle(new))
    await unit.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)
