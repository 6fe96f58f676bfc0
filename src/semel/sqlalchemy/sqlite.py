"""Claims through an engine on SQLite.

Claims are made, looked up and renewed on connections of Semel's own to the engine's
file. Only the effect runs on a connection of the engine's, where the claim is
completed too, so that one COMMIT makes both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from semel.core.model import Mode
from semel.errors import UsageError
from semel.sqlalchemy.effect import Unit
from semel.sqlalchemy.lending import Lender
from semel.sqlite import AsyncStore as FileStore
from semel.store.protocol import Link
from semel.store.render import Texts
from semel.store.statement import Steps
from semel.store.tables import Tables

T = TypeVar("T")

FORM = "create_async_engine('sqlite+aiosqlite:///shop.db')"


class SqliteStore:
    """What `semel.sqlalchemy.AsyncStore` is on SQLite."""

    dialect = "sqlite"
    modes = (Mode.JOINED,)
    reads_first = True
    claims_in_transaction = True
    lazy_effect = True
    scripts = False
    steady = False

    def __init__(
        self,
        engine: AsyncEngine,
        tables: Tables,
        clock: Callable[[], float] | None,
        busy_timeout: float,
    ) -> None:
        """Use an engine.

        Raises:
            UsageError: of another driver, in memory, or with one connection for all.
        """
        self.tables = tables
        self._engine = engine
        self._file = FileStore(
            file_of(engine), tables=tables, clock=clock, busy_timeout=busy_timeout
        )
        texts = Texts(self.dialect, tables, "named", clock)
        self._lender = Lender(engine, self._file, texts, busy_timeout)

    async def open(self) -> None:
        """Make sure that the file can be used, by Semel and by the engine.

        Raises:
            StoreUnavailableError: it can not; the text says why.
            UsageError: the engine's connections are open on another file.
        """
        await self._file.open()
        await self._lender.check()

    async def aclose(self) -> None:
        """Close Semel's own connections."""
        await self._file.aclose()

    def unit(self) -> Unit:
        """Return a unit that borrows connections when it first needs them."""
        return Unit(self._engine, self._lender, self._file.unit())

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program on a connection of Semel's own."""
        return await self._file.run(steps, writes=writes)

    async def migrate(self) -> Sequence[int]:
        """Bring the tables to the newest version; returns what was applied."""
        return await self._file.migrate()

    async def check(self) -> None:
        """Make sure that the tables are there; raises `StoreSchemaError`."""
        await self._file.check()

    def link(self) -> AbstractContextManager[Link]:
        """Open a blocking connection, for the heartbeat's thread."""
        return self._file.link()


def file_of(engine: AsyncEngine) -> str:
    """Return the absolute path of the file that an engine is on.

    Raises:
        UsageError: another driver than aiosqlite, a database in memory, a URI, or a
            pool with one connection for everybody.
    """
    if engine.dialect.driver != "aiosqlite":
        raise UsageError(f"the driver {engine.dialect.driver!r} is not supported: use {FORM}")
    database, query = engine.url.database, engine.url.query
    if not database or ":memory:" in database or query.get("mode") == "memory":
        raise UsageError(
            "an engine on a database in memory has no file that outlives this process and that "
            f"its connections share: give it the path of one, {FORM}"
        )
    if database.startswith("file:") or query.get("uri"):
        raise UsageError(f"give the engine a path, not a URI: {FORM}")
    if isinstance(engine.pool, StaticPool | SingletonThreadPool):
        raise UsageError(
            f"{type(engine.pool).__name__} gives everybody the same connection, so that one "
            "request's transaction would be everybody's: leave poolclass out"
        )
    return str(Path(database).absolute())
