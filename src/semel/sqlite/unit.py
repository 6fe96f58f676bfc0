"""One claim's use of the pool, and what the application runs its statements on.

A program borrows a connection and gives it back at once, unless it leaves a
transaction open. The effect's transaction begins with the application's first
statement, in the same hop; from then on this claim is the file's only writer
until it is settled or closed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum, auto
from typing import Protocol, TypeVar

from semel.errors import ClaimClosedError, UsageError
from semel.sqlite.blocking import Connection, Parameters, Tuples
from semel.sqlite.pool import Loan, Pool
from semel.sqlite.worker import INSIST, finish
from semel.store.statement import Steps, pump

T = TypeVar("T")

# What SQLite skips between words; an empty statement in front is skipped as well.
SPACE = re.compile(r"(?:[\s;\ufeff]|--[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
WORD = re.compile(r"[A-Za-z]*")
CONTROL = frozenset({"BEGIN", "COMMIT", "END", "ROLLBACK"})


class Hop(Protocol):
    """Carries work to the thread of a connection."""

    def __call__(self, work: Callable[[Connection], T], /) -> Awaitable[T]:
        """Return what the work returns."""


class AsyncConnection:
    """A thin asynchronous connection: one hop to its thread for each call.

    Errors are those of `sqlite3`, except where the transaction can not begin.
    The transaction itself belongs to Semel: BEGIN, COMMIT, END and ROLLBACK are
    refused, SAVEPOINT, RELEASE and ROLLBACK TO are the application's (rule W2).
    Connections are pooled: what PRAGMA sets, ATTACH adds or is made TEMP may be met
    by the next one who borrows this connection.
    """

    def __init__(self, hop: Hop) -> None:
        """Made by the store; see `AsyncUnit.tx` and `AsyncStore.connection`."""
        self._hop = hop

    async def execute(self, sql: str, params: Parameters = ()) -> Tuples:
        """Run one statement.

        Args:
            sql: with `?` or `:name` for the parameters.
            params: their values.

        Returns:
            All rows of its result; of a change those that RETURNING names.

        Raises:
            UsageError: the statement would end or begin a transaction.
            StoreConflictError: other writers kept the file locked for too long;
                nothing took effect.
            StoreUnavailableError: the file can not be used.
            ClaimClosedError: the claim's transaction is over.
        """
        refuse_control(sql)
        return await self._hop(lambda connection: connection.execute(sql, params))

    async def executemany(self, sql: str, rows: Iterable[Parameters]) -> int:
        """Run one changing statement for each row, for all of them or for none.

        Returns:
            How many rows were changed.

        Raises:
            UsageError, StoreConflictError, StoreUnavailableError, ClaimClosedError:
                as `execute` does.
        """
        refuse_control(sql)
        listed = list(rows)
        return await self._hop(lambda connection: connection.executemany(sql, listed))


def refuse_control(sql: str) -> None:
    """Keep the application from ending a transaction that is not its own (rule W2).

    Raises:
        UsageError: the statement would begin or end a transaction.
    """
    first, end = _word(sql, 0)
    if first not in CONTROL:
        return
    if first == "ROLLBACK":
        second, end = _word(sql, end)
        if second == "TRANSACTION":
            second, end = _word(sql, end)
        if second == "TO":
            return
    raise UsageError(
        f"{first} on a connection of Semel's: effect and answer are committed together "
        "when the handler returns; for a part that may be undone use SAVEPOINT"
    )


def first_word(sql: str) -> str:
    """Return the word that says what kind of statement this is, in upper case."""
    return _word(sql, 0)[0]


def _word(sql: str, start: int) -> tuple[str, int]:
    space = SPACE.match(sql, start)
    match = WORD.match(sql, space.end() if space else start)
    return (match[0].upper(), match.end()) if match else ("", start)


class Lent:
    """Something that holds a worker of the pool for a while."""

    def __init__(self, pool: Pool) -> None:
        """Borrow nothing yet."""
        self._pool = pool
        self._loan: Loan | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    async def close(self) -> None:
        """Roll back what is open and give the worker back; raises no error.

        A statement that another task still runs here is interrupted. A cancellation
        meanwhile goes on when all that is done.
        """
        self._closed = True
        if self._loan is not None or self._turn.locked():
            await finish(asyncio.ensure_future(self._end()))

    async def _end(self) -> None:
        await self._last_turn()
        try:
            if self._loan is not None:
                await self._loan.worker.end()
                self._give()
        finally:
            self._turn.release()

    async def _last_turn(self) -> None:
        """Wait for, and hurry, a statement that some other task still runs here."""
        while True:
            if self._loan is not None:
                self._loan.worker.interrupt()
            try:
                async with asyncio.timeout(INSIST):
                    await self._turn.acquire()
            except TimeoutError:
                continue
            return

    def _give(self) -> None:
        loan, self._loan = self._loan, None
        if loan is not None:
            self._pool.give(loan)


class Autocommit(Lent):
    """A connection outside every claim, on which each statement commits by itself."""

    async def hop(self, work: Callable[[Connection], T]) -> T:
        """Do some work on the connection, which is borrowed at the first call."""
        async with self._turn:
            if self._closed:
                raise UsageError("this connection was given back: use it inside `async with`")
            if self._loan is None:
                self._loan = await self._pool.take(writes=False)
            return await self._loan.worker.hop(work)


class _Effect(Enum):
    """What became of the effect's transaction."""

    UNTOUCHED = auto()
    OPEN = auto()
    OVER = auto()  # a program committed it or rolled it back
    ESCAPED = auto()  # a statement of the application or SQLite itself did


class AsyncUnit(Lent):
    """The connection of one claim; see `semel.store.protocol.AsyncUnit`."""

    def __init__(self, pool: Pool) -> None:
        """Borrow nothing yet."""
        super().__init__(pool)
        self._effect = _Effect.UNTOUCHED
        self._tx = AsyncConnection(self._statement)

    @property
    def tx(self) -> AsyncConnection:
        """What the application runs its own statements on."""
        return self._tx

    @property
    def touched(self) -> bool:
        """Whether the application ran a statement."""
        return self._effect is not _Effect.UNTOUCHED

    @property
    def begun(self) -> bool:
        """Whether a transaction is open now, as SQLite sees it."""
        return self._loan is not None and self._loan.worker.in_transaction

    @property
    def escaped(self) -> bool:
        """Whether the effect's transaction ended without a program ending it.

        SQLite rolls back by itself where the disk is full, after an I/O error,
        and for `ON CONFLICT ROLLBACK`.
        """
        return self._effect is _Effect.ESCAPED

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program, on the open transaction's connection if there is one.

        Args:
            steps: the program.
            writes: whether it has to queue behind the writers of this process.

        Raises:
            ClaimClosedError: the unit is closed.
            StoreError: what the program raises, or no connection could be had.
        """
        async with self._turn:
            self._refuse_if_closed()
            if self._loan is None:
                self._loan = await self._pool.take(writes=writes)
            try:
                return await self._loan.worker.hop(lambda connection: pump(connection.run, steps))
            finally:
                self._give_back_unless_open(_Effect.OVER)

    async def _statement(self, work: Callable[[Connection], T]) -> T:
        """Do the application's work in the effect's transaction."""
        async with self._turn:
            self._refuse_if_closed()
            if self._effect in (_Effect.OVER, _Effect.ESCAPED):
                raise ClaimClosedError("the claim's transaction is over")
            if self._loan is None:
                self._loan = await self._pool.take(writes=True)
            outcome = _Effect.ESCAPED
            try:
                self._refuse_if_closed()  # it may have been closed while this waited
                return await self._loan.worker.hop(lambda connection: self._begun(connection, work))
            except asyncio.CancelledError:
                # SQLite rolls everything back where a write is interrupted.
                outcome = _Effect.OVER
                raise
            finally:
                self._give_back_unless_open(outcome)

    def _begun(self, connection: Connection, work: Callable[[Connection], T]) -> T:
        if self._effect is _Effect.UNTOUCHED:
            if not connection.in_transaction:
                connection.begin()
            self._effect = _Effect.OPEN
        return work(connection)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ClaimClosedError("the claim is settled: its transaction is over")

    def _give_back_unless_open(self, outcome: _Effect) -> None:
        if self.begun:
            return
        if self._effect is _Effect.OPEN:
            self._effect = outcome
        self._give()
