"""The store: an engine of the application's own, and what the guard asks of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from semel.core.model import Mode
from semel.errors import UsageError
from semel.sqlalchemy.postgresql import PostgresStore
from semel.sqlalchemy.sqlite import SqliteStore
from semel.store.protocol import AsyncUnit, Link
from semel.store.statement import Steps
from semel.store.tables import Tables

T = TypeVar("T")

DRIVERS = "postgresql+asyncpg, postgresql+psycopg or sqlite+aiosqlite"


class AsyncStore:
    """Claims in the database of an asynchronous engine (rules A2, S2).

    On PostgreSQL modes atomic and joined; on SQLite joined, in the engine's file.

    Attributes:
        engine: the engine.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        tables: Tables | None = None,
        clock: Callable[[], float] | None = None,
        owned: bool = False,
        busy_timeout: float = 10.0,
    ) -> None:
        """Use an engine; nothing is sent yet.

        Args:
            engine: made by `create_async_engine`, over asyncpg, psycopg or aiosqlite.
            tables: where Semel's tables are; the connection's own schema by default.
            clock: a time in place of the database's own; for tests.
            owned: whether `aclose` disposes of the engine.
            busy_timeout: SQLite: seconds to wait for other writers, first for those
                of this process and then for those of others.

        Raises:
            UsageError: not an asynchronous engine, or of a database, driver or pool
                that Semel can not keep its promise on; the text says what to do.
        """
        if not isinstance(engine, AsyncEngine):
            raise UsageError("give AsyncStore an engine made by create_async_engine")
        self.engine = engine
        self._owned = owned
        self._store = _made(engine, tables or Tables(), clock, busy_timeout)

    @property
    def dialect(self) -> str:
        """Return `postgresql` or `sqlite`."""
        return self._store.dialect

    @property
    def tables(self) -> Tables:
        """Where Semel's tables are."""
        return self._store.tables

    @property
    def modes(self) -> tuple[Mode, ...]:
        """What this database can do; the first is its default."""
        return self._store.modes

    @property
    def reads_first(self) -> bool:
        """Whether a claim is looked up before it is made."""
        return self._store.reads_first

    @property
    def claims_in_transaction(self) -> bool:
        """Whether a joined claim's statements need a transaction round them."""
        return self._store.claims_in_transaction

    @property
    def lazy_effect(self) -> bool:
        """Whether the effect's transaction begins at the handler's first statement."""
        return self._store.lazy_effect

    @property
    def scripts(self) -> bool:
        """Whether several statements can be sent in one round trip."""
        return self._store.scripts

    @property
    def steady(self) -> bool:
        """Whether its statements wait for futures alone; see `semel.shielding`."""
        return self._store.steady

    async def open(self) -> None:
        """Make sure that a connection can be had; raises `StoreUnavailableError`."""
        await self._store.open()

    async def aclose(self) -> None:
        """Close what is this store's own: the engine, where that was said."""
        await self._store.aclose()
        if self._owned:
            await self.engine.dispose()

    def unit(self) -> AsyncUnit[AsyncConnection]:
        """Return a unit that borrows a connection when it first needs one."""
        return self._store.unit()

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program on a borrowed connection and give that back.

        Args:
            steps: the program.
            writes: whether it may write; on SQLite those queue.

        Raises:
            StoreError: what the program raises, or no connection could be had.
        """
        return await self._store.run(steps, writes=writes)

    async def migrate(self) -> Sequence[int]:
        """Bring the tables to the newest version; returns what was applied."""
        return await self._store.migrate()

    async def check(self) -> None:
        """Make sure that the tables are there; raises `StoreSchemaError`."""
        await self._store.check()

    def link(self) -> AbstractContextManager[Link]:
        """Open a blocking connection outside the pool, for the heartbeat's thread."""
        return self._store.link()


def _made(
    engine: AsyncEngine,
    tables: Tables,
    clock: Callable[[], float] | None,
    busy_timeout: float,
) -> PostgresStore | SqliteStore:
    match engine.dialect.name:
        case "postgresql":
            return PostgresStore(engine, tables, clock)
        case "sqlite":
            return SqliteStore(engine, tables, clock, busy_timeout)
        case name:
            raise UsageError(f"the dialect {name!r} is not supported: use {DRIVERS}")
