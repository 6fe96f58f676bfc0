"""A guard on an engine, sessions that join it, and effects as seen from outside."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import MetaData, event, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.ext.asyncio import async_sessionmaker as plain_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from semel.claim import AsyncClaim
from semel.core.fingerprint import RequestImage
from semel.core.model import Answer, Replay
from semel.core.options import Options
from semel.events import Event
from semel.guard import AsyncGuard, Refusal, restore
from semel.sqlalchemy import AsyncStore, async_sessionmaker

PAID = Answer(201, ((b"content-type", b"text/plain"),), b"paid")
DECLINED = Answer(402, ((b"content-type", b"text/plain"),), b"declined")
FAILED = Answer(500, (), b"")

ON_POSTGRES = ("asyncpg", "psycopg")
# On a file of SQLite, with the ways in which an engine's owner may have transactions begin.
ON_FILE = ("aiosqlite", "aiosqlite-recipe", "aiosqlite-autocommit")


class Base(DeclarativeBase):
    metadata = MetaData()


class Payment(Base):
    """One effect."""

    __tablename__ = "payment"

    id: Mapped[int] = mapped_column(primary_key=True)
    what: Mapped[str]
    once: Mapped[str | None] = mapped_column(unique=True)


@dataclass
class Shop:
    """What a test works with.

    Attributes:
        url: the address of a database, or the path of a file.
    """

    engine: AsyncEngine
    session: plain_sessionmaker[AsyncSession]
    guard: AsyncGuard[AsyncConnection]
    url: str
    events: list[Event] = field(default_factory=list)

    @property
    def on_file(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    async def acquire(self, key: str = "k") -> AsyncClaim[AsyncConnection] | Refusal:
        image = RequestImage("POST", "/pay", b"", (), b"{}")
        return await self.guard.acquire("shop", key, self.guard.fingerprint(image), route="pay")

    async def claim(self, key: str = "k") -> AsyncClaim[AsyncConnection]:
        claim = await self.acquire(key)
        assert isinstance(claim, AsyncClaim)
        return claim

    async def pay(self, what: str) -> None:
        """Do what a usual handler does."""
        async with self.session() as session:
            session.add(Payment(what=what))
            await session.commit()

    async def replays(self, key: str = "k") -> bool:
        restore(None)
        found = await self.acquire(key)
        if isinstance(found, AsyncClaim):
            await found.release()
        return isinstance(found, Replay)

    async def query(self, sql: str) -> list[tuple[Any, ...]]:
        if self.on_file:
            return await asyncio.to_thread(query_file, self.url, sql)
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as outside:
            return await (await outside.execute(sql.encode())).fetchall()

    async def effects(self) -> list[str]:
        return [row[0] for row in await self.query("SELECT what FROM payment ORDER BY id")]

    def names(self) -> list[str]:
        return [event.name for event in self.events]


def query_file(path: str, sql: str) -> list[tuple[Any, ...]]:
    """Look into a file of SQLite from outside."""
    with closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as outside:
        return outside.execute(sql).fetchall()


def file_engine(path: Path | str, driver: str = "aiosqlite", **options: Any) -> AsyncEngine:
    """Return an engine on a file of SQLite.

    Args:
        path: the file.
        driver: one of `ON_FILE`.
        options: those of `create_async_engine`.
    """
    if driver == "aiosqlite-autocommit":
        options["isolation_level"] = "AUTOCOMMIT"
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", **options)
    if driver == "aiosqlite-recipe":
        _begin_by_event(engine)
    return engine


def _begin_by_event(engine: AsyncEngine) -> None:
    """SQLAlchemy's documented way to transactions that cover reads and savepoints."""

    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


def engine_on(url: str, driver: str, size: int) -> AsyncEngine:
    """Return an engine with a bounded pool.

    Args:
        url: the address of a database, or the path of a file.
        driver: one of `ON_POSTGRES` or `ON_FILE`.
        size: connections at most.
    """
    options = {"pool_size": size, "max_overflow": 0, "pool_timeout": 5}
    if driver in ON_FILE:
        return file_engine(url, driver, **options)
    return create_async_engine(make_url(url).set(drivername=f"postgresql+{driver}"), **options)


@asynccontextmanager
async def orm_shop(
    url: str, driver: str, *, size: int = 5, busy_timeout: float = 10.0, **options: Any
) -> AsyncIterator[Shop]:
    """Open a shop on an empty database.

    Args:
        url: the address of a database, or the path of a file.
        driver: one of `ON_POSTGRES` or `ON_FILE`.
        size: connections at most.
        busy_timeout: seconds, on a file.
        options: those of the guard.
    """
    engine = engine_on(url, driver, size)
    store = AsyncStore(engine, busy_timeout=busy_timeout)
    guard = AsyncGuard(store, Options(**options))
    shop = Shop(engine, async_sessionmaker(engine), guard, url)
    guard.on_event = shop.events.append
    try:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        await store.migrate()
        async with guard:
            yield shop
    finally:
        await engine.dispose()
