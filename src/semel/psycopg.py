"""Claims in PostgreSQL through psycopg 3: `semel.psycopg.AsyncStore(pool)`.

The handler's `claim.tx` is a plain `psycopg.AsyncConnection` from the
application's own pool. While Semel's transaction is open, its `commit`,
`rollback` and `set_autocommit` refuse; `connection.transaction()` gives nested
savepoints as usual. A COMMIT sent as SQL text can not be refused: it is
detected when the claim is settled.

BEGIN, COMMIT and ROLLBACK are sent below the cursor: a rollback through it makes
psycopg forget every prepared statement of the connection, and a repeat that is
answered with a conflict or a replay ends in one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, RawCursor, generators
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from semel.core.model import Mode
from semel.errors import (
    ClaimClosedError,
    ClaimLostError,
    StoreConflictError,
    StoreError,
    StoreSchemaError,
    StoreUnavailableError,
    UsageError,
)
from semel.store import schema
from semel.store.protocol import Link
from semel.store.render import Texts
from semel.store.statement import Rows, Statement, Steps, apump
from semel.store.tables import Tables

T = TypeVar("T")
Connection = AsyncConnection[Any]
Pool = AsyncConnectionPool[Any]

CONTROL = frozenset({"begin", "commit", "rollback", "savepoint", "rollback_to"})
REFUSED = ("commit", "rollback", "set_autocommit")
OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR, TransactionStatus.ACTIVE)

CONFLICT = frozenset({"40001", "40P01", "55P03", "23505"})
NO_SCHEMA = frozenset({"42P01", "42703", "3F000"})
# Terminated, shutting down, starting up, out of resources, read-only, idle too long.
UNAVAILABLE = ("08", "53", "57P", "58", "25006", "25P03", "57014")
CONNECT_SECONDS = 5


class AsyncStore:
    """Claims in PostgreSQL, on connections of the application's own pool (rules A2, S2)."""

    dialect = "postgresql"
    modes = (Mode.ATOMIC, Mode.JOINED)
    reads_first = False
    claims_in_transaction = False
    lazy_effect = False

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
        unit = AsyncUnit(self)
        try:
            return await unit.run(steps, writes=writes)
        finally:
            await unit.close()

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


class AsyncUnit:
    """One claim's connection: borrowed at the first program, given back by `close`."""

    def __init__(self, store: AsyncStore) -> None:
        """Borrow nothing yet."""
        self._store = store
        self._connection: Connection | None = None
        self._closed = False
        self._autocommit = True
        self._in_program_transaction = False

    @property
    def tx(self) -> Connection:
        """The connection, inside the claim's transaction."""
        if self._connection is None:
            message = "the claim is settled: its transaction is over"
            raise ClaimClosedError(message)
        return self._connection

    @property
    def begun(self) -> bool:
        """Whether the database has a transaction open on this connection."""
        connection = self._connection
        return connection is not None and connection.info.transaction_status in OPEN

    @property
    def escaped(self) -> bool:
        """Whether the handler ended the transaction with a statement of its own."""
        connection = self._connection
        return (
            self._in_program_transaction
            and connection is not None
            and connection.info.transaction_status == TransactionStatus.IDLE
        )

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program; the database orders the writers by itself."""
        del writes
        if self._closed:
            steps.close()
            message = "the unit is closed"
            raise ClaimClosedError(message)
        if self._connection is None:
            try:
                self._connection = await self._borrow()
            except BaseException:
                steps.close()
                raise
        return await apump(self._run_one, steps)

    async def close(self) -> None:
        """Roll back what is open and give the connection back; never raises."""
        connection, self._connection = self._connection, None
        self._closed = True
        if connection is None:
            return
        _allow(connection)
        try:
            if connection.info.transaction_status in OPEN:
                await _command(connection, b"ROLLBACK")
            if not self._autocommit:
                await connection.set_autocommit(False)
        except Exception:  # noqa: BLE001 - a connection in doubt is not given back alive
            with suppress(Exception):
                await connection.close()
        with suppress(Exception):
            await self._store.pool.putconn(connection)

    async def _borrow(self) -> Connection:
        with mapped():
            await self._store.open_own_pool()
            connection: Connection = await self._store.pool.getconn()
            try:
                self._autocommit = connection.autocommit
                if not connection.autocommit:
                    await connection.set_autocommit(True)
            except BaseException:
                await self._store.pool.putconn(connection)
                raise
            return connection

    async def _run_one(self, statement: Statement) -> Rows:
        connection = self.tx
        with mapped():
            if statement.name in CONTROL:
                await self._control(connection, statement.name)
                return ()
            if statement.name == "raw":
                await _command(connection, statement.params["sql"].encode())
                return ()
            sql, values = self._store.texts.numbered(statement)
            cursor = AsyncRawCursor(connection, row_factory=tuple_row)
            await cursor.execute(sql, values, binary=True)
            return await cursor.fetchall() if cursor.description else ()

    async def _control(self, connection: Connection, name: str) -> None:
        sql = self._store.texts.numbered(Statement(name))[0].encode()
        if name == "begin":
            level = connection.isolation_level
            if level is not None:
                sql += b" ISOLATION LEVEL " + level.name.replace("_", " ").encode()
            await _command(connection, sql)
            self._in_program_transaction = True
            _refuse(connection)
            return
        if name in ("commit", "rollback"):
            self._in_program_transaction = False
            _allow(connection)
        done = await _command(connection, sql)
        if name == "commit" and done != b"COMMIT":
            message = "the transaction was aborted before: nothing was committed"
            raise StoreError(message)


async def _command(connection: Connection, sql: bytes) -> bytes:
    """Send one text without parameters; returns the database's word for it."""
    async with connection.lock:
        return await connection.wait(_send(connection, sql))


def _send(connection: Connection, sql: bytes) -> PQGen[bytes]:
    connection.pgconn.send_query(sql)
    results = yield from generators.execute(connection.pgconn)
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, encoding=connection.info.encoding)
    return results[-1].command_status or b""


def _refuse(connection: Connection) -> None:
    """Keep the application from ending a transaction that is not its own (rule W2)."""
    for name in REFUSED:
        setattr(connection, name, _refusal(name))


def _allow(connection: Connection) -> None:
    for name in REFUSED:
        vars(connection).pop(name, None)


def _refusal(name: str) -> Callable[..., Awaitable[None]]:
    async def refuse(*_: object) -> None:
        message = (
            f"{name}() on a claim's connection: Semel commits effect and answer together "
            "when the handler returns; for a part that may be undone use "
            "`async with connection.transaction()`"
        )
        raise UsageError(message)

    return refuse


@contextmanager
def mapped() -> Iterator[None]:
    """Translate psycopg's errors by SQLSTATE, never by class."""
    try:
        yield
    except (PoolTimeout, PoolClosed, TooManyRequests) as error:
        message = f"no database connection to be had: {error}"
        raise StoreUnavailableError(message) from error
    except psycopg.Error as error:
        raise _translate(error) from error
    except OSError as error:
        raise StoreUnavailableError(str(error), outcome_unknown=True) from error


def _translate(error: psycopg.Error) -> StoreError | ClaimLostError:
    state = error.sqlstate or ""
    text = f"{state} {str(error).splitlines()[0] if str(error) else type(error).__name__}".strip()
    if state == "22012":
        return ClaimLostError("the claim was not this owner's any more: nothing was completed")
    if state in CONFLICT:
        return StoreConflictError(text)
    if state in NO_SCHEMA:
        return StoreSchemaError(f"Semel's tables are missing or old, run `semel migrate` ({text})")
    if state.startswith(UNAVAILABLE) or (
        not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    ):
        return StoreUnavailableError(text, outcome_unknown=True)
    return StoreError(text)
