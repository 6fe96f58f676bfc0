"""A guard on an engine, sessions that join it, and effects as seen from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from sqlalchemy import MetaData, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.ext.asyncio import async_sessionmaker as plain_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from semel.claim import AsyncClaim
from semel.core.fingerprint import RequestImage
from semel.core.model import Answer
from semel.core.options import Options
from semel.events import Event
from semel.guard import AsyncGuard, Refusal
from semel.sqlalchemy import AsyncStore, async_sessionmaker

PAID = Answer(201, ((b"content-type", b"text/plain"),), b"paid")
DECLINED = Answer(402, ((b"content-type", b"text/plain"),), b"declined")
FAILED = Answer(500, (), b"")


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
    """What a test works with."""

    engine: AsyncEngine
    session: plain_sessionmaker[AsyncSession]
    guard: AsyncGuard[AsyncConnection]
    url: str
    events: list[Event] = field(default_factory=list)

    async def acquire(self, key: str = "k") -> AsyncClaim[AsyncConnection] | Refusal:
        image = RequestImage("POST", "/pay", b"", (), b"{}")
        return await self.guard.acquire("shop", key, self.guard.fingerprint(image), route="pay")

    async def claim(self, key: str = "k") -> AsyncClaim[AsyncConnection]:
        claim = await self.acquire(key)
        assert isinstance(claim, AsyncClaim)
        return claim

    async def query(self, sql: str) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as outside:
            return await (await outside.execute(sql.encode())).fetchall()

    async def effects(self) -> list[str]:
        return [row[0] for row in await self.query("SELECT what FROM payment ORDER BY id")]

    def names(self) -> list[str]:
        return [event.name for event in self.events]


@asynccontextmanager
async def orm_shop(url: str, driver: str, *, size: int = 5, **options: Any) -> AsyncIterator[Shop]:
    """Open a shop on an empty database of PostgreSQL.

    Args:
        url: the database.
        driver: `asyncpg` or `psycopg`.
        size: connections at most.
        options: those of the guard.
    """
    address = make_url(url).set(drivername=f"postgresql+{driver}")
    engine = create_async_engine(address, pool_size=size, max_overflow=0, pool_timeout=5)
    store = AsyncStore(engine)
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
