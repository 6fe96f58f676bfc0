"""The harnesses of Semel's own stores; a module, so that other processes can import them."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from orm import file_engine
from semel import asyncpg as semel_asyncpg
from semel import psycopg as semel_psycopg
from semel import sqlalchemy as semel_sqlalchemy
from semel import sqlite
from semel.store.tables import Tables
from semel.testing.conformance import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

EFFECT = "CREATE TABLE effect (value text NOT NULL)"
# The suite makes tables in a schema of this name, which is no part of the search path.
OWN_SCHEMA = "Own_1"
Tx = TypeVar("Tx")
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


@dataclass(frozen=True)
class FileHarness(Harness[Tx]):
    """A file; looked at from outside by `sqlite3`."""

    path: Path

    async def prepare(self) -> None:
        await self.execute(EFFECT)

    async def effects(self) -> list[str]:
        return [
            value for (value,) in await asyncio.to_thread(self._rows, "SELECT value FROM effect")
        ]

    async def describe(self, tables: Tables) -> object:
        rows = await asyncio.to_thread(
            self._rows, "SELECT type, sql FROM sqlite_schema WHERE sql NOT NULL"
        )
        mine = sorted((kind, sql) for kind, sql in rows if f'"{tables.prefix}' in sql)
        return [(kind, sql.replace(f'"{tables.prefix}', '"')) for kind, sql in mine]

    async def execute(self, sql: str) -> None:
        await asyncio.to_thread(self._rows, sql)

    @property
    def nowhere(self) -> Path:
        return self.path / "no" / "such" / "folder.db"

    def _rows(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.path, timeout=10, isolation_level=None)) as connection:
            return connection.execute(sql).fetchall()


@dataclass(frozen=True)
class SqliteHarness(FileHarness[sqlite.AsyncConnection]):
    """Through Semel's own thin connection."""

    kind: type[sqlite.AsyncStore] = sqlite.AsyncStore

    def store(
        self, *, clock: Callable[[], float] | None = None, tables: Tables | None = None
    ) -> sqlite.AsyncStore:
        return self.kind(self.path, clock=clock, tables=tables)

    async def write_effect(self, tx: sqlite.AsyncConnection, value: str) -> None:
        await tx.execute("INSERT INTO effect (value) VALUES (?)", [value])

    async def fail(self, tx: sqlite.AsyncConnection) -> None:
        await tx.execute("INSERT INTO effect (value) VALUES (NULL)")

    def unreachable(self) -> sqlite.AsyncStore:
        return self.kind(self.nowhere)


@contextmanager
def own_schema(url: str, isolation: str) -> Iterator[str]:
    """Make a new schema; yields an address whose connections use it at an isolation level."""
    name = f"test_{secrets.token_hex(8)}"
    level = isolation.replace(" ", "\\ ")
    # No test here crashes the server: whether a commit has reached the disk does not matter.
    options = (
        f"-c search_path={name} -c default_transaction_isolation={level} -c synchronous_commit=off"
    )
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        try:
            yield f"{url}?{urlencode({'options': options}, quote_via=quote)}"
        finally:
            for schema in (name, OWN_SCHEMA):
                drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE")
                admin.execute(drop.format(sql.Identifier(schema)))


@dataclass(frozen=True)
class PostgresHarness(Harness[Tx]):
    """A database, at an address that says the rest; looked at from outside by psycopg."""

    url: str

    async def prepare(self) -> None:
        await self.execute(EFFECT)

    async def effects(self) -> list[str]:
        return [value for (value,) in await self._rows("SELECT value FROM effect")]

    async def describe(self, tables: Tables) -> object:
        columns = await self._rows(
            "SELECT table_name, column_name, data_type, is_nullable, column_default,"
            " ordinal_position"
            " FROM information_schema.columns"
            " WHERE table_schema = coalesce(nullif(%(schema)s, ''), current_schema())"
            " AND starts_with(table_name, %(prefix)s) ORDER BY 1, 6",
            {"schema": tables.schema, "prefix": tables.prefix},
        )
        indexes = await self._rows(
            "SELECT tablename, indexdef FROM pg_indexes"
            " WHERE schemaname = coalesce(nullif(%(schema)s, ''), current_schema())"
            " AND starts_with(tablename, %(prefix)s) ORDER BY 1, 2",
            {"schema": tables.schema, "prefix": tables.prefix},
        )
        return [
            tuple(
                value.replace(tables.prefix, "") if isinstance(value, str) else value
                for value in row
            )
            for row in [*columns, *indexes]
        ]

    async def execute(self, sql: str) -> None:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            await connection.execute(sql)

    async def _rows(self, sql: str, params: dict[str, str] | None = None) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            return await (await connection.execute(sql, params)).fetchall()


@dataclass(frozen=True)
class PsycopgHarness(PostgresHarness["psycopg.AsyncConnection[Any]"]):
    """Through psycopg."""

    def store(
        self, *, clock: Callable[[], float] | None = None, tables: Tables | None = None
    ) -> semel_psycopg.AsyncStore:
        return semel_psycopg.AsyncStore.connect(self.url, clock=clock, tables=tables)

    async def write_effect(self, tx: psycopg.AsyncConnection[Any], value: str) -> None:
        await tx.execute("INSERT INTO effect (value) VALUES (%s)", [value])

    async def fail(self, tx: psycopg.AsyncConnection[Any]) -> None:
        await tx.execute("INSERT INTO effect (value) VALUES (NULL)")

    def unreachable(self) -> semel_psycopg.AsyncStore:
        pool = AsyncConnectionPool[Any](NOWHERE, open=False, min_size=1, timeout=0.5)
        return semel_psycopg.AsyncStore(pool, owned=True)


@dataclass(frozen=True)
class AsyncpgHarness(PostgresHarness[Any]):
    """Through asyncpg."""

    def store(
        self, *, clock: Callable[[], float] | None = None, tables: Tables | None = None
    ) -> semel_asyncpg.AsyncStore:
        return semel_asyncpg.AsyncStore.connect(self.url, clock=clock, tables=tables)

    async def write_effect(self, tx: Any, value: str) -> None:
        await tx.execute("INSERT INTO effect (value) VALUES ($1)", value)

    async def fail(self, tx: Any) -> None:
        await tx.execute("INSERT INTO effect (value) VALUES (NULL)")

    def unreachable(self) -> semel_asyncpg.AsyncStore:
        return semel_asyncpg.AsyncStore.connect(NOWHERE)


@dataclass(frozen=True)
class EngineHarness(PostgresHarness[AsyncConnection]):
    """Through SQLAlchemy, on one of its drivers."""

    driver: str

    def store(
        self, *, clock: Callable[[], float] | None = None, tables: Tables | None = None
    ) -> semel_sqlalchemy.AsyncStore:
        return semel_sqlalchemy.AsyncStore(
            self.engine(self.url), clock=clock, tables=tables, owned=True
        )

    def engine(self, url: str) -> AsyncEngine:
        address = make_url(url).set(drivername=f"postgresql+{self.driver}")
        options = address.query.get("options", "")
        if self.driver == "asyncpg" and isinstance(options, str):
            settings = {"server_settings": {"options": options}}
            address = address.difference_update_query(["options"])
            return create_async_engine(address, connect_args=settings)
        return create_async_engine(address)

    async def write_effect(self, tx: AsyncConnection, value: str) -> None:
        await tx.execute(text("INSERT INTO effect (value) VALUES (:value)"), {"value": value})

    async def fail(self, tx: AsyncConnection) -> None:
        await tx.execute(text("INSERT INTO effect (value) VALUES (NULL)"))

    def unreachable(self) -> semel_sqlalchemy.AsyncStore:
        return semel_sqlalchemy.AsyncStore(self.engine(NOWHERE), owned=True)


@dataclass(frozen=True)
class EngineFileHarness(FileHarness[AsyncConnection]):
    """Through SQLAlchemy and aiosqlite.

    Attributes:
        driver: one of `orm.ON_FILE`.
    """

    driver: str

    def store(
        self, *, clock: Callable[[], float] | None = None, tables: Tables | None = None
    ) -> semel_sqlalchemy.AsyncStore:
        engine = file_engine(self.path, self.driver)
        return semel_sqlalchemy.AsyncStore(engine, clock=clock, tables=tables, owned=True)

    async def write_effect(self, tx: AsyncConnection, value: str) -> None:
        await tx.execute(text("INSERT INTO effect (value) VALUES (:value)"), {"value": value})

    async def fail(self, tx: AsyncConnection) -> None:
        await tx.execute(text("INSERT INTO effect (value) VALUES (NULL)"))

    def unreachable(self) -> semel_sqlalchemy.AsyncStore:
        return semel_sqlalchemy.AsyncStore(file_engine(self.nowhere, self.driver), owned=True)
