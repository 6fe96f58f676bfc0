"""The store: a file, its connections, and what the guard asks of them."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

from semel.core.model import Mode
from semel.errors import UsageError
from semel.sqlite.blocking import Connection
from semel.sqlite.pool import Pool
from semel.sqlite.unit import AsyncConnection, AsyncUnit, Autocommit
from semel.store import schema
from semel.store.protocol import Link
from semel.store.render import Texts
from semel.store.statement import Rows, Statement, Steps, pump
from semel.store.tables import Tables

T = TypeVar("T")

# A renewal that can not get through soon is tried again at the next beat.
LINK_PATIENCE = 1.0


class AsyncStore:
    """Claims in a file of SQLite (rules A2, A6, A9, S2).

    Attributes:
        path: the file, absolute.
        tables: the names of Semel's tables in it.
    """

    dialect = "sqlite"
    modes = (Mode.JOINED,)
    reads_first = True
    claims_in_transaction = True
    lazy_effect = True
    scripts = False
    steady = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tables: Tables | None = None,
        clock: Callable[[], float] | None = None,
        size: int = 4,
        busy_timeout: float = 10.0,
    ) -> None:
        """Open nothing yet; the first use does, or `open`.

        Args:
            path: the file, made at the first use; its folder must be there.
            tables: a prefix for Semel's tables.
            clock: a time in place of the database's own, in epoch seconds; for
                tests.
            size: connections at most, each with a thread of its own.
            busy_timeout: seconds to wait for other writers, first for those of
                this process and then for those of others.

        Raises:
            UsageError: a path, schema or number that can not work.
        """
        self.path = _checked(path)
        self.tables = tables or Tables()
        if self.tables.schema:
            raise UsageError("SQLite has no schemas: set a table prefix instead")
        if size < 1 or not 0 < busy_timeout < math.inf:
            raise UsageError("size must be at least 1, busy_timeout a positive number of seconds")
        self._size = size
        self._busy_timeout = busy_timeout
        self._texts = Texts(self.dialect, self.tables, "named", clock)
        self._pool = self._new_pool()

    async def open(self) -> None:
        """Make sure that the file can be used; also after `aclose`.

        Raises:
            StoreUnavailableError: the file can not be opened; the text says why.
        """
        if self._pool.closed:
            self._pool = self._new_pool()
        await self.run(_touch(), writes=False)

    async def aclose(self) -> None:
        """Close the connections; those in use as soon as they are given back."""
        await self._pool.aclose()

    def unit(self) -> AsyncUnit:
        """Return a unit that borrows a connection when it first needs one."""
        return AsyncUnit(self._pool)

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program on a borrowed connection and give that back.

        Args:
            steps: the program.
            writes: whether it has to queue behind the writers of this process.

        Raises:
            StoreError: what the program raises, or no connection could be had.
        """
        pool = self._pool
        loan = await pool.take(writes=writes)
        try:
            return await loan.worker.hop(
                lambda connection: pump(connection.run, steps), leave_open=False
            )
        finally:
            pool.give(loan)

    async def line_up(self) -> Callable[[], None]:
        """Wait for the writers ahead, for authors of drivers; see `Pool.line_up`."""
        return await self._pool.line_up()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection on which each statement commits by itself.

        For reading, and for what is not part of a guarded request. Its writes do
        not queue with those of this process: they wait for the file as another
        process would.
        """
        lent = Autocommit(self._pool)
        try:
            yield AsyncConnection(lent.hop)
        finally:
            await lent.close()

    @contextmanager
    def link(self) -> Iterator[Link]:
        """Open a blocking connection outside the pool, for the heartbeat's thread.

        It waits a second at most: while an effect's transaction keeps it out,
        nobody else can take a claim over either.
        """
        patience = min(LINK_PATIENCE, self._busy_timeout)
        connection = Connection(self.path, self._texts, patience, any_thread=True)

        def run(statement: Statement) -> Rows:
            connection.be_patient()
            return connection.run(statement)

        try:
            yield run
        finally:
            connection.close()

    async def migrate(self) -> Sequence[int]:
        """Bring the tables to the newest version; returns what was applied."""
        return await self.run(schema.migrate(self.dialect, self.tables))

    async def check(self) -> None:
        """Make sure that the tables are there; raises `StoreSchemaError`."""
        await self.run(schema.check(self.dialect), writes=False)

    def _new_pool(self) -> Pool:
        return Pool(
            lambda: Connection(self.path, self._texts, self._busy_timeout),
            self._size,
            self._busy_timeout,
        )


def _touch() -> Steps[None]:
    yield schema.raw("SELECT count(*) FROM sqlite_schema")


def _checked(path: str | os.PathLike[str]) -> str:
    """Return the path of a real file, the same after a change of the directory."""
    text = os.fspath(path)
    if text in {"", ":memory:"}:
        raise UsageError(
            "each connection to :memory: is a database of its own: give the path of a file, "
            "or use semel.memory"
        )
    if text.startswith("file:"):
        raise UsageError("give a path, not a URI")
    return str(Path(text).absolute())
