"""Where psycopg's connections come from: the application's pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeAlias, TypeVar

import psycopg
from psycopg import RawCursor
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from semel.core.model import Mode
from semel.errors import UsageError
from semel.psycopg.errors import mapped
from semel.psycopg.wire import Connection, Wire
from semel.store import schema
from semel.store.protocol import Link
from semel.store.render import Texts
from semel.store.statement import Rows, Statement, Steps
from semel.store.tables import Tables
from semel.store.unit import Unit, run_once
from semel.store.unit import Wire as AnyWire

T = TypeVar("T")
AsyncUnit: TypeAlias = Unit[Connection]
Pool = AsyncConnectionPool[Any]

CONNECT_SECONDS = 5


class AsyncStore:
    """Claims in PostgreSQL, on connections of the application's own pool (rules A2, S2)."""

    dialect = "postgresql"
    modes = (Mode.ATOMIC, Mode.JOINED)
    reads_first = False
    claims_in_transaction = False
    lazy_effect = False
    scripts = True
    steady = False  # since Python 3.12 `wait_for`, which psycopg uses, is such a time-out

    def __init__(
        self,
        pool: Pool,
        *,
        tables: Tables | None = None,
        clock: Callable[[], float] | None = None,
        owned: bool = False,
    ) -> None:
        """Use a pool; nothing is sent yet.

        Args:
            pool: any configuration of its connections will do.
            tables: where Semel's tables are; the connection's own schema by default.
            clock: a time in place of the database's own; for tests.
            owned: whether `open` and `aclose` open and close the pool.
        """
        self.pool = pool
        self.tables = tables or Tables()
        self.texts = Texts(self.dialect, self.tables, "numbered", clock)
        self._owned = owned

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        tables: Tables | None = None,
        clock: Callable[[], float] | None = None,
        max_size: int = 16,
    ) -> Self:
        """Make a store with a pool of its own.

        Args:
            url: a connection string that libpq understands.
            tables: where Semel's tables are.
            clock: a time in place of the database's own; for tests.
            max_size: connections at most.
        """
        pool = AsyncConnectionPool[Any](
            url,
            open=False,
            min_size=1,
            max_size=max_size,
            timeout=CONNECT_SECONDS,
            kwargs={"autocommit": True, "connect_timeout": CONNECT_SECONDS},
        )
        return cls(pool, tables=tables, clock=clock, owned=True)

    async def open(self) -> None:
        """Open the pool, if it is this store's own.

        Raises:
            StoreUnavailableError: no connection could be made in time.
        """
        if not self._owned:
            return
        with mapped():
            await self.open_own_pool()
            # `pool.wait` would close the pool for good when it gives up.
            await self.pool.putconn(await self.pool.getconn(CONNECT_SECONDS))

    async def open_own_pool(self) -> None:
        """Open the pool if it is this store's own and was never opened; waits for nothing."""
        if self._owned and self.pool.closed:
            await self.pool.open()

    async def aclose(self) -> None:
        """Close the pool, if it is this store's own."""
        if self._owned:
            await self.pool.close()

    def unit(self) -> AsyncUnit:
        """Return a unit that borrows a connection when it first needs one."""
        return AsyncUnit(self)

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program on a borrowed connection and give that back."""
        del writes
        return await run_once(self, steps)

    async def borrow(self) -> AnyWire[Connection]:
        """Take a connection from the pool; raises `StoreUnavailableError`."""
        with mapped():
            await self.open_own_pool()
            connection: Connection = await self.pool.getconn()
            try:
                wire = Wire(connection, self.texts)
                await wire.start()
            except BaseException:
                await self.pool.putconn(connection)
                raise
            return wire

    async def give_back(self, wire: AnyWire[Connection]) -> None:
        """Give a connection back to the pool; never raises."""
        connection = wire.tx
        try:
            await wire.end()
        except Exception:  # noqa: BLE001 - a connection in doubt is not given back alive
            with suppress(Exception):
                await connection.close()
        with suppress(Exception):
            await self.pool.putconn(connection)

    async def migrate(self) -> Sequence[int]:
        """Bring the tables to the newest version; returns what was applied."""
        return await self.run(schema.migrate(self.dialect, self.tables))

    async def check(self) -> None:
        """Make sure that the tables are there; raises `StoreSchemaError`."""
        await self.run(schema.check(self.dialect), writes=False)

    @contextmanager
    def link(self) -> Iterator[Link]:
        """Open a blocking connection outside the pool, for the heartbeat's thread."""
        conninfo = self.pool.conninfo
        if not isinstance(conninfo, str):
            message = "the pool's connection string must be plain text"
            raise UsageError(message)
        with mapped():
            connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS)

        def run(statement: Statement) -> Rows:
            sql, values = self.texts.numbered(statement)
            with mapped():
                cursor = RawCursor(connection, row_factory=tuple_row)
                cursor.execute(sql, values, binary=True)
                return cursor.fetchall()

        with connection:
            yield run
