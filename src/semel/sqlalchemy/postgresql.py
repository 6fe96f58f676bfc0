"""Claims through an engine on PostgreSQL.

Semel's own statements go straight to the driver below SQLAlchemy, by the same code
as without it; sessions and `claim.tx` sit at the same connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

from semel.core.model import Mode
from semel.errors import StoreError, StoreUnavailableError, UsageError
from semel.sqlalchemy.errors import mapped
from semel.sqlalchemy.parts import Parts
from semel.sqlalchemy.shared import Seat, SharedConnection
from semel.store import schema
from semel.store.loops import blocking_link
from semel.store.protocol import Link
from semel.store.render import Texts
from semel.store.statement import SAVEPOINT, Rows, Statement, Steps
from semel.store.tables import Tables
from semel.store.unit import Unit, run_once
from semel.store.unit import Wire as AnyWire

T = TypeVar("T")

# Kept with the connection while a claim has it.
WAS_AUTOCOMMIT = "semel_was_autocommit"


class DriverWire(AnyWire[Any], Protocol):
    """A driver's own wire, which can also send a text without parameters."""

    async def command(self, sql: str) -> object:
        """Send it; raises the driver's own errors."""


# Of the pool's proxy, the statements, and the isolation level that the engine sets.
DriverWireMaker = Callable[[Any, Texts, str | None], DriverWire]


class PostgresStore:
    """What `semel.sqlalchemy.AsyncStore` is on PostgreSQL."""

    dialect = "postgresql"
    modes = (Mode.ATOMIC, Mode.JOINED)
    reads_first = False
    claims_in_transaction = False
    lazy_effect = False

    def __init__(
        self, engine: AsyncEngine, tables: Tables, clock: Callable[[], float] | None
    ) -> None:
        """Use an engine; raises `UsageError` for an unknown driver."""
        self.tables = tables
        self.scripts = True
        self.steady = engine.dialect.driver == "asyncpg"
        self._engine = engine
        self._texts = Texts(self.dialect, tables, "numbered", clock)
        self._line = driver_wire(engine)

    async def open(self) -> None:
        """Make sure that a connection can be had; raises `StoreUnavailableError`."""
        await self.give_back(await self.borrow())

    async def aclose(self) -> None:
        """Close nothing: all connections are the engine's."""

    def unit(self) -> Unit[AsyncConnection]:
        """Return a unit that borrows a connection when it first needs one."""
        return Unit(self)

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program on a borrowed connection and give that back."""
        del writes
        return await run_once(self, steps)

    async def borrow(self) -> AnyWire[AsyncConnection]:
        """Take a connection from the engine's pool; raises `StoreUnavailableError`."""
        try:
            with mapped():
                pooled, level = await check_out(self._engine.sync_engine.raw_connection)
        except StoreError as error:
            raise StoreUnavailableError(str(error)) from error  # whatever keeps it from us
        return Wire(self._engine, pooled, self._line(pooled, self._texts, level))

    async def give_back(self, wire: AnyWire[AsyncConnection]) -> None:
        """Give a connection back to the pool; never raises."""
        broken = _is_in_use(_pooled(wire))
        try:
            await wire.end()
        except Exception:  # noqa: BLE001 - a connection in doubt is not given back alive
            broken = True
        with suppress(Exception):
            await check_in(_pooled(wire), broken=broken)

    async def migrate(self) -> Sequence[int]:
        """Bring the tables to the newest version; returns what was applied."""
        return await self.run(schema.migrate(self.dialect, self.tables))

    async def check(self) -> None:
        """Make sure that the tables are there; raises `StoreSchemaError`."""
        await self.run(schema.check(self.dialect), writes=False)

    def link(self) -> AbstractContextManager[Link]:
        """Open a blocking connection outside the pool, for the heartbeat's thread."""
        return blocking_link(self._another, self._close)

    async def _another(self) -> AnyWire[Any]:
        """Connect as the pool does, but in the event loop of another thread."""
        pool = self._engine.sync_engine.pool.recreate()
        with mapped():
            pooled, level = await check_out(pool.connect)
        return Wire(self._engine, pooled, self._line(pooled, self._texts, level))

    async def _close(self, wire: AnyWire[Any]) -> None:
        await greenlet_spawn(_pooled(wire).invalidate)


class Wire(SharedConnection):
    """One connection; see `semel.store.unit.Wire`."""

    pooled: Any = None

    def __init__(self, engine: AsyncEngine, pooled: Any, line: DriverWire) -> None:  # noqa: ANN401
        """Use a connection.

        Args:
            engine: the engine.
            pooled: the pool's proxy of a connection, in autocommit mode.
            line: runs statements on the driver's connection below it.
        """
        super().__init__(engine, Parts(self._command))
        self.pooled = pooled
        self._line = line

    @property
    def is_valid(self) -> bool:
        """Whether the pool takes it for alive."""
        return bool(self.pooled.is_valid)

    @property
    def begun(self) -> bool:
        """Whether the database has a transaction open on this connection."""
        return self._line.begun

    @property
    def escaped(self) -> bool:
        """Whether the handler ended the transaction with a statement of its own."""
        return self._line.escaped

    def cursor(self, seat: Seat, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the driver's own
        """Return a cursor of the driver's."""
        del seat
        return self.pooled.cursor(*args, **kwargs)

    def invalidate(self, error: BaseException | None) -> None:
        """Close the connection."""
        self.pooled.invalidate(error)

    async def run(self, statement: Statement) -> Rows:
        """Run one of Semel's statements."""
        rows = await self._line.run(statement)
        if statement is SAVEPOINT or SAVEPOINT in statement.params.get("statements", ()):
            self.parts.has_savepoint = True
        return rows

    async def end(self) -> None:
        """Roll back what is open; whoever joined can do nothing any more."""
        self.parts.over = True
        await self._line.end()

    def _command(self, sql: str) -> object:
        work: Awaitable[object] = self._line.command(sql)
        return await_only(work)


async def check_out(connect: Callable[[], Any]) -> tuple[Any, str | None]:
    """Take a connection from a pool, in autocommit mode; raises what the pool raises.

    Args:
        connect: the pool's own function.

    Returns:
        The pool's proxy of it, and the isolation level that the engine sets on it.
    """

    def take() -> tuple[Any, str | None]:
        pooled = connect()
        try:
            adapter = pooled.dbapi_connection
            level = getattr(adapter, "isolation_level", None)
            pooled.info[WAS_AUTOCOMMIT] = adapter.autocommit
            if not adapter.autocommit:
                adapter.autocommit = True
        except BaseException:
            pooled.close()
            raise
        return pooled, None if level in (None, "autocommit") else str(level)

    return await greenlet_spawn(take)


async def check_in(pooled: Any, *, broken: bool) -> None:  # noqa: ANN401 - SQLAlchemy's own proxy
    """Give a connection back to the pool as it was."""

    def give() -> None:
        if broken or not pooled.is_valid or _is_dead(pooled.driver_connection):
            pooled.invalidate()
            return
        if not pooled.info.pop(WAS_AUTOCOMMIT, False):
            pooled.dbapi_connection.autocommit = False
        pooled.close()

    await greenlet_spawn(give)


def driver_wire(engine: AsyncEngine) -> DriverWireMaker:
    """Return what runs Semel's statements on the driver of an engine.

    Raises:
        UsageError: the engine uses a driver that Semel does not know.
    """
    name = engine.dialect.driver
    if name in ("psycopg", "psycopg_async"):
        from semel.psycopg.wire import Wire as Psycopg  # noqa: PLC0415 - only where it is used

        # The level is kept by psycopg's connection itself.
        return lambda pooled, texts, _: Psycopg(pooled.driver_connection, texts)
    if name == "asyncpg":
        from semel.asyncpg.wire import Wire as Asyncpg  # noqa: PLC0415 - only where it is used

        return lambda pooled, texts, level: Asyncpg(pooled.driver_connection, texts, level)
    raise UsageError(
        f"the driver {name!r} is not supported: use postgresql+asyncpg or postgresql+psycopg"
    )


def _is_dead(driver: Any) -> bool:  # noqa: ANN401 - psycopg's connection, or asyncpg's
    """Say whether a connection is lost: SQLAlchemy's pool would lend it again."""
    closed = getattr(driver, "closed", None)
    return bool(driver.is_closed() if closed is None else closed)


def _is_in_use(pooled: Any) -> bool:  # noqa: ANN401 - SQLAlchemy's own proxy
    """Say whether a statement waits for the connection that must not meet the next one's work."""
    mutex = getattr(pooled.dbapi_connection, "_execute_mutex", None)
    return mutex is not None and mutex.locked()


def _pooled(wire: AnyWire[Any]) -> Any:  # noqa: ANN401 - SQLAlchemy's own proxy
    assert isinstance(wire, Wire)  # noqa: S101 - this store's own
    return wire.pooled
