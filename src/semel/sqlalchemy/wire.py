"""A claim's connection out of an engine's pool, on PostgreSQL.

Semel's own statements go straight to the driver below SQLAlchemy, by the same code
as without it; sessions and `claim.tx` sit at the same connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.orm import Session
from sqlalchemy.util import await_only, greenlet_spawn

from semel.errors import UsageError
from semel.sqlalchemy.parts import JoinedConnection, OpenConnection, OpenSeat, Parts, Seat
from semel.store.render import Texts
from semel.store.statement import SAVEPOINT, Rows, Statement
from semel.store.unit import Wire as AnyWire

# Kept with the connection while a claim has it.
WAS_AUTOCOMMIT = "semel_was_autocommit"


class DriverWire(AnyWire[Any], Protocol):
    """A driver's own wire, which can also send a text without parameters."""

    async def command(self, sql: str) -> object:
        """Send it; raises the driver's own errors."""


# Of the pool's proxy, the statements, and the isolation level that the engine sets.
DriverWireMaker = Callable[[Any, Texts, str | None], DriverWire]


class Wire:
    """One connection; see `semel.store.unit.Wire`.

    Attributes:
        parts: what sessions and `tx` did in the claim's transaction.
    """

    def __init__(self, engine: AsyncEngine, pooled: Any, line: DriverWire) -> None:  # noqa: ANN401
        """Use a connection.

        Args:
            engine: the engine.
            pooled: the pool's proxy of a connection, in autocommit mode.
            line: runs statements on the driver's connection below it.
        """
        self.pooled = pooled
        self.parts = Parts(self._command)
        self._engine = engine
        self._line = line
        self._tx: AsyncConnection | None = None
        self._joined: WeakKeyDictionary[Session, JoinedConnection] = WeakKeyDictionary()

    @property
    def tx(self) -> AsyncConnection:
        """A connection for statements outside every session."""
        if self._tx is None:
            seat = OpenSeat(self.pooled, self.parts)
            joined = OpenConnection(self._engine.sync_engine, seat)
            self._tx = AsyncConnection(self._engine, joined)
        return self._tx

    @property
    def touched(self) -> bool:
        """Whether a session or `tx` did anything."""
        return self.parts.touched

    @property
    def begun(self) -> bool:
        """Whether the database has a transaction open on this connection."""
        return self._line.begun

    @property
    def escaped(self) -> bool:
        """Whether the handler ended the transaction with a statement of its own."""
        return self._line.escaped

    def joined(self, session: Session) -> JoinedConnection:
        """Return the connection on which a session works in this transaction."""
        self.parts.refuse_if_over()
        found = self._joined.get(session)
        if found is None:
            seat = Seat(self.pooled, self.parts)
            found = self._joined[session] = JoinedConnection(self._engine.sync_engine, seat)
        return found

    def has_joined(self, session: Session) -> bool:
        """Say whether a session works in this transaction."""
        return session in self._joined

    def serves(self, engine: Engine) -> bool:
        """Say whether an engine takes its connections from the same pool."""
        return engine.pool is self._engine.sync_engine.pool

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
        if broken or not pooled.is_valid:
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
        f"the driver {name!r} is not supported: use postgresql+asyncpg, postgresql+psycopg "
        "or sqlite+aiosqlite"
    )
