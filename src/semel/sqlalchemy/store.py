"""The store: an engine of the application's own, and what the guard asks of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeAlias, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import greenlet_spawn

from semel.core.model import Mode
from semel.errors import StoreError, StoreUnavailableError, UsageError
from semel.sqlalchemy.errors import mapped
from semel.sqlalchemy.wire import Wire, check_in, check_out, driver_wire
from semel.store import schema
from semel.store.loops import blocking_link
from semel.store.protocol import Link
from semel.store.render import Texts
from semel.store.statement import Steps
from semel.store.tables import Tables
from semel.store.unit import Unit, run_once
from semel.store.unit import Wire as AnyWire

T = TypeVar("T")
AsyncUnit: TypeAlias = Unit[AsyncConnection]


class AsyncStore:
    """Claims in the database of an asynchronous engine (rules A2, S2).

    Attributes:
        engine: the engine.
        tables: where Semel's tables are.
    """

    dialect = "postgresql"
    modes = (Mode.ATOMIC, Mode.JOINED)
    reads_first = False
    claims_in_transaction = False
    lazy_effect = False
    scripts = True

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        tables: Tables | None = None,
        clock: Callable[[], float] | None = None,
        owned: bool = False,
    ) -> None:
        """Use an engine; nothing is sent yet.

        Args:
            engine: made by `create_async_engine`, over asyncpg or psycopg.
            tables: where Semel's tables are; the connection's own schema by default.
            clock: a time in place of the database's own; for tests.
            owned: whether `aclose` disposes of the engine.

        Raises:
            UsageError: not an asynchronous engine, or of a database or driver that
                Semel does not know.
        """
        if not isinstance(engine, AsyncEngine):
            raise UsageError("give AsyncStore an engine made by create_async_engine")
        self.engine = engine
        self.tables = tables or Tables()
        self.texts = Texts(self.dialect, self.tables, "numbered", clock)
        self._line = driver_wire(engine)
        self._owned = owned

    async def open(self) -> None:
        """Make sure that a connection can be had; raises `StoreUnavailableError`."""
        await self.give_back(await self.borrow())

    async def aclose(self) -> None:
        """Dispose of the engine, if it is this store's own."""
        if self._owned:
            await self.engine.dispose()

    def unit(self) -> AsyncUnit:
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
                pooled, level = await check_out(self.engine.sync_engine.raw_connection)
        except StoreError as error:
            raise StoreUnavailableError(str(error)) from error  # whatever keeps it from us
        return Wire(self.engine, pooled, self._line(pooled, self.texts, level))

    async def give_back(self, wire: AnyWire[AsyncConnection]) -> None:
        """Give a connection back to the pool; never raises."""
        broken = False
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
        pool = self.engine.sync_engine.pool.recreate()
        with mapped():
            pooled, level = await check_out(pool.connect)
        return Wire(self.engine, pooled, self._line(pooled, self.texts, level))

    async def _close(self, wire: AnyWire[Any]) -> None:
        await greenlet_spawn(_pooled(wire).invalidate)


def _pooled(wire: AnyWire[Any]) -> Any:  # noqa: ANN401 - SQLAlchemy's own proxy
    assert isinstance(wire, Wire)  # noqa: S101 - this store's own
    return wire.pooled
