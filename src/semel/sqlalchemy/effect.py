"""A claim's effect on SQLite: one connection of the engine, from BEGIN IMMEDIATE to COMMIT.

What SQLAlchemy calls the beginning of a transaction sends nothing to SQLite, and
what Python's `sqlite3` does on its own begins with the first change only. So BEGIN
IMMEDIATE is sent here, at the handler's first statement, and nothing else may begin
or end a transaction until the claim is settled.

The transaction has a savepoint, which tells it from any other: where it is missing
at the end, somebody has ended this transaction and begun another one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only

from semel.errors import ClaimClosedError, ClaimLostError, UsageError
from semel.sqlalchemy.lending import Lender, Loan
from semel.sqlalchemy.parts import CLAIM_SAVEPOINT, Parts, refuse_settled
from semel.sqlalchemy.shared import Seat, SharedConnection
from semel.sqlite.blocking import Connection
from semel.sqlite.errors import kind
from semel.sqlite.unit import AsyncUnit as FileUnit
from semel.sqlite.unit import first_word, refuse_control
from semel.sqlite.worker import finish
from semel.store.statement import Rows, Statement, Steps, pump

T = TypeVar("T")

# Attributes of the pool's proxy that lead to the driver's own connection.
BEHIND = frozenset({"connection", "dbapi_connection", "driver_connection"})


class Effect(SharedConnection):
    """The connection that sessions and `claim.tx` work on; nobody has one before it begins.

    Attributes:
        opening: held while the transaction begins.
    """

    def __init__(self, engine: AsyncEngine, lender: Lender) -> None:
        """Borrow nothing yet."""
        super().__init__(engine, Parts(self._command, self._begin))
        self._lender = lender
        self._loan: Loan | None = None
        self.opening = asyncio.Lock()
        self._running = 0

    @property
    def pooled(self) -> Any:  # noqa: ANN401 - SQLAlchemy's own proxy
        """The pool's proxy of the connection; raises `UsageError` before there is one."""
        if self._loan is None:
            self.parts.refuse_if_over()
            raise UsageError(
                "a claim's connection to SQLite is borrowed at the first statement: run one first"
            )
        return self._loan.pooled

    @property
    def is_valid(self) -> bool:
        """Whether no statement was cut short."""
        return not self.parts.broken

    @property
    def opened(self) -> bool:
        """Whether the handler's first statement has begun the transaction."""
        return self._loan is not None

    @property
    def begun(self) -> bool:
        """Whether the transaction is open and can be committed."""
        return self._loan is not None and not self.parts.broken and self._loan.in_transaction

    @property
    def escaped(self) -> bool:
        """Whether the transaction has ended although no program ended it."""
        if self._loan is None or self.parts.over or self.parts.broken:
            return False
        return not self._loan.in_transaction

    def attribute(self, name: str) -> Any:  # noqa: ANN401 - whatever the driver has
        """Return what the pool's proxy has, but not what could commit out of Semel's sight."""
        if name in BEHIND:
            raise UsageError(
                f"{name} inside a guarded request: the driver's own connection could end the "
                "claim's transaction; use the session, or claim.tx"
            )
        return super().attribute(name)

    def cursor(self, seat: Seat, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the driver's own
        """Return a cursor that runs statements in this transaction, and no others."""
        return Cursor(self.pooled.cursor(*args, **kwargs), seat, self)

    def invalidate(self, error: BaseException | None) -> None:
        """Hurry the statement that was cut short; `end` waits for it."""
        del error
        if self._loan is not None:
            self._loan.interrupt()

    async def run(self, steps: Steps[T]) -> T:
        """Run a program in the transaction.

        Raises:
            ClaimLostError: the transaction is not the one that the handler began.
            StoreUnavailableError: its connection is broken.
            StoreError: what the program raises.
        """
        self.parts.refuse_if_over()
        assert self._loan is not None  # noqa: S101 - `opened`
        return await self._loan.worker.hop(
            lambda connection: pump(lambda statement: self._run(connection, statement), steps)
        )

    async def end(self) -> None:
        """Roll back what is open and give the connection back; raises no error."""
        self.parts.over = True
        loan, self._loan = self._loan, None
        if loan is not None:
            # Whoever still sends something must not meet the next one's transaction.
            in_use = self.parts.broken or self._running > 0
            await self._lender.take_back(loan, broken=in_use)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count a statement that is on its way to the connection, or runs there."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def refuse_unless_open(self) -> None:
        """Raise `ClaimClosedError` where a statement would not be in the transaction."""
        self.parts.refuse_if_over()
        if not self.begun:
            raise ClaimClosedError(
                "the claim's transaction is over: a statement outside Semel's sight, or SQLite "
                "itself, has ended it"
            )

    def _run(self, connection: Connection, statement: Statement) -> Rows:
        if statement.name in ("commit", "rollback"):
            self.parts.over = True  # what is sent from now on would be outside of it
        elif statement.name == "claim_complete" and statement.params["proof"] is not None:
            _prove(connection)
        return connection.run(statement)

    def _command(self, sql: str) -> object:
        loan = self._loan
        assert loan is not None  # noqa: S101 - a part has begun
        self.refuse_unless_open()
        return await_only(loan.worker.hop(lambda connection: connection.execute(sql)))

    def _begin(self) -> None:
        if self._loan is None:
            await_only(self._open())

    async def _open(self) -> None:
        async with self.opening:
            if self._loan is not None:
                return
            self.parts.refuse_if_over()
            loan = await self._lender.lend()
            if self.parts.over:  # it was settled while this waited
                await finish(asyncio.ensure_future(self._lender.take_back(loan, broken=False)))
                refuse_settled()
            self.parts.has_savepoint = True
            self._loan = loan


def _prove(connection: Connection) -> None:
    """Make sure that the transaction is the one that has the claim's savepoint."""
    try:
        connection.execute(f"RELEASE SAVEPOINT {CLAIM_SAVEPOINT}")
    except sqlite3.OperationalError as error:
        if kind(error) != sqlite3.SQLITE_ERROR:
            raise
        raise ClaimLostError("the handler ended the claim's transaction itself") from error


class Cursor:
    """A cursor of the driver's, for statements that neither begin nor end a transaction."""

    def __init__(self, cursor: Any, seat: Seat, effect: Effect) -> None:  # noqa: ANN401 - SQLAlchemy's own
        """Stand before a cursor."""
        self._cursor = cursor
        self._seat = seat
        self._effect = effect

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the driver has
        """Be the driver's cursor."""
        return getattr(self._cursor, name)

    def execute(self, sql: str, *params: Any) -> Any:  # noqa: ANN401 - the driver's own
        """Run a statement.

        Raises:
            UsageError: it would begin or end a transaction.
            ClaimClosedError: the claim's transaction is over.
        """
        if self._seat.beginning and first_word(sql) == "BEGIN":
            return None  # the engine's owner has a listener send it; this has begun
        return self._checked(self._cursor.execute, sql, *params)

    def executemany(self, sql: str, rows: Any) -> Any:  # noqa: ANN401 - the driver's own
        """Run a statement for each row; see `execute`."""
        return self._checked(self._cursor.executemany, sql, rows)

    def _checked(self, run: Callable[..., Any], sql: str, *params: Any) -> Any:  # noqa: ANN401
        refuse_control(sql)
        self._effect.refuse_unless_open()
        with self._effect.running():
            return run(sql, *params)


class Unit:
    """One claim's use of the store; see `semel.store.protocol.AsyncUnit`.

    Programs run on connections of Semel's own until the handler's first statement
    has begun the effect, and on the effect's connection from then on.

    Attributes:
        wire: the effect's connection, for sessions that join; `None` once closed.
    """

    def __init__(self, engine: AsyncEngine, lender: Lender, programs: FileUnit) -> None:
        """Borrow nothing yet."""
        self.wire: Effect | None = Effect(engine, lender)
        self._programs = programs
        self._asked = False

    @property
    def tx(self) -> AsyncConnection:
        """What the application runs its own statements on; raises `ClaimClosedError`."""
        effect = self._effect()
        self._asked = True
        return effect.tx

    @property
    def touched(self) -> bool:
        """Whether the application used the transaction."""
        return self._asked or (self.wire is not None and self.wire.touched)

    @property
    def begun(self) -> bool:
        """Whether a transaction is open now, as SQLite sees it."""
        return self._programs.begun or (self.wire is not None and self.wire.begun)

    @property
    def escaped(self) -> bool:
        """Whether the effect's transaction ended without a program ending it."""
        return self.wire is not None and self.wire.escaped

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program, in the effect's transaction if that has begun.

        Args:
            steps: the program.
            writes: whether it has to queue behind the writers of this process.

        Raises:
            ClaimClosedError: the unit is closed.
            StoreError, ClaimLostError: what the program raises.
        """
        try:
            effect = self._effect()
            async with effect.opening:  # which has the place at the front that this would queue for
                if effect.opened:
                    return await effect.run(steps)
                return await self._programs.run(steps, writes=writes)
        finally:
            steps.close()

    async def close(self) -> None:
        """Roll back what is open and give back what was borrowed; raises no error."""
        effect, self.wire = self.wire, None
        if effect is not None:
            self._asked = self._asked or effect.touched
            await finish(asyncio.ensure_future(effect.end()))
        await self._programs.close()

    def _effect(self) -> Effect:
        if self.wire is None:
            raise ClaimClosedError("the claim is settled: its transaction is over")
        return self.wire
