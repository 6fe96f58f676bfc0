"""What a store offers to the guard; a driver module implements it.

A store knows how to lend connections. All knowledge about claims is in
`semel.store.programs`: a driver only runs statements and maps its library's
errors to `semel.errors`:

* `StoreConflictError`: aborted for another transaction's sake (40001, 40P01,
  55P03, 23505; SQLITE_BUSY), or a script not known to this connection (26000):
  nothing took effect;
* `ClaimLostError`: the completion met no row (22012);
* `StoreUnavailableError`: unreachable, shut down, terminated; with
  `outcome_unknown` where a statement was sent and its answer is lost;
* `StoreSchemaError`: a table or column is missing;
* `StoreError`: anything else.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from semel.core.model import Mode
from semel.store.statement import Rows, Statement, Steps
from semel.store.tables import Tables

T = TypeVar("T")
Tx_co = TypeVar("Tx_co", covariant=True)


class AsyncUnit(Protocol[Tx_co]):
    """The connection of one claim, from its acquire to its settlement."""

    @property
    def tx(self) -> Tx_co:
        """What the application runs its own statements on."""

    @property
    def touched(self) -> bool:
        """Whether the application used the transaction, now or before it was over."""

    @property
    def begun(self) -> bool:
        """Whether a transaction is open now, as the database sees it."""

    @property
    def escaped(self) -> bool:
        """Whether somebody else ended the transaction that a program had begun."""

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program on this unit's connection, borrowing one if need be.

        Args:
            steps: the program.
            writes: whether it may write; stores with a single writer queue those.
        """

    async def close(self) -> None:
        """Give the connection back. With a transaction open it is rolled back.

        Never raises; a connection in doubt is closed instead of given back.
        """


class Link(Protocol):
    """A connection of its own, blocking, for one background thread."""

    def __call__(self, statement: Statement) -> Rows:
        """Run one statement; raises `StoreError`."""


class AsyncStore(Protocol[Tx_co]):
    """A place where claims live.

    Attributes:
        modes: what it can do; the first is its default.
        tables: where its tables are.
        reads_first: look up before claiming (stores with a single writer). False
            where a look-up of an absent key does harm.
        claims_in_transaction: a joined claim's statements need a transaction
            round them.
        lazy_effect: the effect's transaction begins at the handler's first
            statement, by the driver itself.
        steady: its statements wait for futures alone, and no time-out of theirs cancels
            the task that waits; see `semel.shielding`.
        scripts: several statements can be sent in one round trip.
    """

    @property
    def modes(self) -> tuple[Mode, ...]: ...  # noqa: D102 - documented above
    @property
    def tables(self) -> Tables: ...  # noqa: D102
    @property
    def reads_first(self) -> bool: ...  # noqa: D102
    @property
    def claims_in_transaction(self) -> bool: ...  # noqa: D102
    @property
    def lazy_effect(self) -> bool: ...  # noqa: D102
    @property
    def scripts(self) -> bool: ...  # noqa: D102
    @property
    def steady(self) -> bool: ...  # noqa: D102

    def unit(self) -> AsyncUnit[Tx_co]:
        """Return a unit that borrows a connection when it first needs one."""

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program on a borrowed connection and give that back."""

    def link(self) -> AbstractContextManager[Link]:
        """Open a blocking connection outside every pool (for the heartbeat)."""

    async def open(self) -> None:
        """Connect, if that has not happened; a first use does it by itself."""

    async def aclose(self) -> None:
        """Close what this store opened itself, never what it was given."""
