"""Where asyncpg's connections come from: the application's pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast

import asyncpg

from semel.asyncpg.errors import FAILURES, mapped, translated
from semel.asyncpg.inside import ADOPTS, release, spares_resets
from semel.asyncpg.wire import Wire
from semel.core.model import Mode
from semel.errors import StoreUnavailableError, UsageError
from semel.store import schema
from semel.store.loops import blocking_link
from semel.store.protocol import Link
from semel.store.render import Texts
from semel.store.statement import Steps
from semel.store.tables import Tables
from semel.store.unit import Unit, run_once
from semel.store.unit import Wire as AnyWire

if TYPE_CHECKING:
    from semel.asyncpg.wire import Connection

    Pool: TypeAlias = "asyncpg.Pool[Any]"
    AsyncUnit: TypeAlias = Unit[Connection]

T = TypeVar("T")

CONNECT_SECONDS = 5.0
ACQUIRE_SECONDS = 5.0


class AsyncStore:
    """Claims in PostgreSQL, on connections of the application's own pool (rules A2, S2)."""

    dialect = "postgresql"
    modes = (Mode.ATOMIC, Mode.JOINED)
    reads_first = False
    claims_in_transaction = False
    lazy_effect = False
    scripts = ADOPTS
    steady = True

    def __init__(
        self,
        pool: Pool | Callable[[], Awaitable[Pool]],
        *,
        tables: Tables | None = None,
        clock: Callable[[], float] | None = None,
        connect: Callable[[], Awaitable[Any]] | None = None,
        acquire_timeout: float = ACQUIRE_SECONDS,
    ) -> None:
        """Use a pool; nothing is sent yet.

        Args:
            pool: a pool of the application's own, or a function that makes one at
                the first use; such a pool is closed with the store.
            tables: where Semel's tables are; the connection's own schema by default.
            clock: a time in place of the database's own; for tests.
            connect: makes one more connection, for the thread that renews the
                leases of joined claims; by default with the pool's own arguments.
            acquire_timeout: seconds to wait for a connection of the pool, which would
                wait for ever by itself; then the request is refused with 503.
        """
        self._make = None if isinstance(pool, asyncpg.Pool) else pool
        self._pool = pool if isinstance(pool, asyncpg.Pool) else None
        self._resets: bool | None = None
        self._opening = asyncio.Lock()
        self._connect = connect
        self._acquire_timeout = acquire_timeout
        self.tables = tables or Tables()
        self.texts = Texts(self.dialect, self.tables, "numbered", clock)

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
            url: an address that asyncpg understands.
            tables: where Semel's tables are.
            clock: a time in place of the database's own; for tests.
            max_size: connections at most.
        """

        async def make() -> Pool:
            with legible():
                return await asyncpg.create_pool(
                    url, min_size=1, max_size=max_size, timeout=CONNECT_SECONDS
                )

        async def another() -> Any:  # noqa: ANN401 - asyncpg's own type
            with legible():
                return await asyncpg.connect(url, timeout=CONNECT_SECONDS)

        return cls(make, tables=tables, clock=clock, connect=another)

    @property
    def pool(self) -> Pool:
        """The pool.

        Raises:
            UsageError: the store makes it itself, and is not open.
        """
        if self._pool is None:
            raise UsageError("the store is not open: enter its guard, or await store.open()")
        return self._pool

    async def open(self) -> None:
        """Make the pool, if it is this store's own.

        Raises:
            StoreUnavailableError: no connection could be made in time.
        """
        if self._make is None or self._pool is not None:
            return
        async with self._opening:
            if self._pool is None:
                with mapped():
                    self._pool = await self._make()

    async def aclose(self) -> None:
        """Close the pool, if it is this store's own."""
        if self._make is not None and self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    def unit(self) -> AsyncUnit:
        """Return a unit that borrows a connection when it first needs one."""
        return Unit(self)

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program on a borrowed connection and give that back."""
        del writes
        return await run_once(self, steps)

    async def borrow(self) -> AnyWire[Connection]:
        """Take a connection from the pool; raises `StoreUnavailableError`."""
        if self._pool is None:
            await self.open()
        if self._resets is None:
            self._resets = spares_resets(self.pool)
        try:
            # Setting a clock costs something, and mostly there is nothing to wait for.
            waits = not self.pool.get_idle_size()
            patience = self._acquire_timeout if waits else None
            connection = await self.pool.acquire(timeout=patience)
        except TimeoutError as error:
            message = f"no database connection to be had in {self._acquire_timeout:g} seconds"
            raise StoreUnavailableError(message) from error
        except FAILURES as error:
            raise translated(error) from error
        return Wire(connection, self.texts, resets=self._resets)

    async def give_back(self, wire: AnyWire[Connection]) -> None:
        """Give a connection back to the pool; never raises."""
        assert isinstance(wire, Wire)  # noqa: S101 - this store's own
        connection = wire.connection
        try:
            await wire.end()
        except Exception:  # noqa: BLE001 - a connection in doubt is not given back alive
            with suppress(Exception):
                connection.terminate()
        with suppress(Exception):
            await release(self.pool, connection)

    async def migrate(self) -> Sequence[int]:
        """Bring the tables to the newest version; returns what was applied."""
        return await self.run(schema.migrate(self.dialect, self.tables))

    async def check(self) -> None:
        """Make sure that the tables are there; raises `StoreSchemaError`."""
        await self.run(schema.check(self.dialect), writes=False)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection outside every claim."""
        await self.open()
        async with self.pool.acquire() as connection:
            yield connection

    def link(self) -> AbstractContextManager[Link]:
        """Open a blocking connection outside the pool, for the heartbeat's thread."""
        return blocking_link(self._another, _close)

    async def _another(self) -> AnyWire[Any]:
        with mapped():
            return Wire(await (self._connect or self._like_the_pool)(), self.texts)

    async def _like_the_pool(self) -> Any:  # noqa: ANN401 - asyncpg's own type
        # asyncpg tells nobody what a pool connects to.
        known = vars(asyncpg.Pool).keys() >= {"_connect_args", "_connect_kwargs"}
        if not known:
            raise UsageError("this release of asyncpg hides how a pool connects: give `connect`")
        arguments: Any = self.pool
        return await asyncpg.connect(*arguments._connect_args, **arguments._connect_kwargs)  # noqa: SLF001


@contextmanager
def legible() -> Iterator[None]:
    """Say what is wrong with an address, of which asyncpg may tell in any error's words."""
    try:
        yield
    except ValueError as error:
        raise StoreUnavailableError(f"the address can not be used: {error}") from error


async def _close(wire: AnyWire[Any]) -> None:
    await cast("Wire", wire).connection.close()
