"""A guard on PostgreSQL with a table for effects, for the tests of guard and driver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from semel.claim import AsyncClaim
from semel.core.fingerprint import RequestImage
from semel.core.model import Answer
from semel.core.options import Options
from semel.events import Event
from semel.guard import AsyncGuard, Refusal
from semel.psycopg import AsyncStore

ANSWER = Answer(201, ((b"content-type", b"text/plain"),), b"paid")


class Shop:
    """A guard, its events, and the effects as the database shows them from outside."""

    def __init__(self, guard: AsyncGuard[psycopg.AsyncConnection[Any]], url: str) -> None:
        self.guard = guard
        self.url = url
        self.events: list[Event] = []
        guard.on_event = self.events.append

    async def acquire(
        self, key: str, body: bytes = b"500"
    ) -> AsyncClaim[psycopg.AsyncConnection[Any]] | Refusal:
        image = RequestImage("POST", "/pay", b"", (), body)
        return await self.guard.acquire(
            "shop", key, self.guard.fingerprint(image), route="POST /pay"
        )

    async def claim(
        self, key: str, body: bytes = b"500"
    ) -> AsyncClaim[psycopg.AsyncConnection[Any]]:
        claim = await self.acquire(key, body)
        assert isinstance(claim, AsyncClaim)
        return claim

    def names(self) -> list[str]:
        return [event.name for event in self.events]

    async def query(self, sql: str) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(
            self.url, autocommit=True, application_name="outside"
        ) as connection:
            return await (await connection.execute(sql.encode())).fetchall()

    async def effects(self) -> list[str]:
        return [row[0] for row in await self.query("SELECT what FROM effect ORDER BY id")]


async def pay(claim: AsyncClaim[psycopg.AsyncConnection[Any]], what: str = "paid") -> None:
    """Do the effect: one row in the claim's transaction."""
    await claim.tx.execute("INSERT INTO effect (what) VALUES (%s)", [what])


@asynccontextmanager
async def shop(url: str, **options: Any) -> AsyncIterator[Shop]:
    """Open a shop on an empty database."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as admin:
        await admin.execute(
            "CREATE TABLE IF NOT EXISTS effect ("
            "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text, "
            "once text UNIQUE DEFERRABLE INITIALLY DEFERRED)"
        )
    store = AsyncStore.connect(url)
    async with AsyncGuard(store, Options(**options)) as guard:
        await store.migrate()
        yield Shop(guard, url)
