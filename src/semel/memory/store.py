"""Lends connections to the dictionary, and keeps the application's effects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from semel.core.model import Mode
from semel.errors import ClaimClosedError, SemelError, StoreError, UsageError
from semel.memory.statements import Statements
from semel.memory.table import Database, Transaction
from semel.store.protocol import Link
from semel.store.statement import ROLLBACK, Rows, Statement, Steps, apump, pump
from semel.store.tables import Tables

T = TypeVar("T")


class AsyncStore:
    """Claims in memory, in joined and in atomic mode (rule A2).

    It is safe to use from several threads and event loops at once.

    Attributes:
        statements: what runs the statements; tests replace it.
        tables: kept for the locks that are named after it.
        effects: what handlers appended to `claim.tx`, in the order of their commits.
    """

    dialect = "memory"
    reads_first = False
    claims_in_transaction = False
    lazy_effect = False
    scripts = False
    steady = True
    statements: ClassVar[type[Statements]] = Statements

    def __init__(
        self,
        *,
        modes: tuple[Mode, ...] = (Mode.JOINED, Mode.ATOMIC),
        clock: Callable[[], float] | None = None,
        tables: Tables | None = None,
        interleave: bool = False,
    ) -> None:
        """Make an empty store.

        Args:
            modes: what it should offer, the default one first.
            clock: the store's time, in epoch seconds; this machine's by default.
            tables: the names that a database would have.
            interleave: let other tasks run before every statement, as a database
                would; for tests of races.

        Raises:
            UsageError: a mode that this store does not have.
        """
        if not modes or not {Mode.JOINED, Mode.ATOMIC}.issuperset(modes):
            raise UsageError("the memory store offers the modes joined and atomic")
        self.modes = modes
        self.tables = tables or Tables()
        self.database = Database(clock or time.time)
        self.effects = self.database.effects
        self._run = self.statements(self.database)
        self._interleave = interleave

    async def open(self) -> None:
        """Do nothing: there is nothing to connect to."""

    async def aclose(self) -> None:
        """Do nothing: the rows stay."""

    async def migrate(self) -> Sequence[int]:
        """Do nothing: there are no tables to make."""
        return ()

    async def check(self) -> None:
        """Do nothing: this store is always as new as the code."""

    def unit(self) -> AsyncUnit:
        """Return a connection for one claim."""
        return AsyncUnit(self.session(), interleave=self._interleave)

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program on a connection of its own."""
        unit = self.unit()
        try:
            return await unit.run(steps, writes=writes)
        finally:
            await unit.close()

    @contextmanager
    def link(self) -> Iterator[Link]:
        """Open a blocking connection; any thread may use it."""
        session = self.session()
        try:
            yield session
        finally:
            session(ROLLBACK)

    def session(self) -> Session:
        """Return a connection."""
        return Session(self.database, self._run)


class Session:
    """One blocking connection; outside a transaction each statement commits by itself.

    Attributes:
        transaction: the one that is open.
    """

    def __init__(self, database: Database, statements: Statements) -> None:
        """Open no transaction yet."""
        self.transaction: Transaction | None = None
        self._database = database
        self._statements = statements
        self._control: dict[str, Callable[[], None]] = {
            "begin": self._begin,
            "commit": self._commit,
            "rollback": self._rollback,
            "savepoint": self._savepoint,
            "rollback_to": self._rollback_to,
        }

    def __call__(self, statement: Statement) -> Rows:
        """Run one statement; raises `StoreError`."""
        with self._database.lock:
            if statement.name in self._control:
                self._control[statement.name]()
                return ()
            if self.transaction is None:
                return self._by_itself(statement)
            return self._inside(self.transaction, statement)

    def append(self, effect: Any) -> None:  # noqa: ANN401 - whatever the application calls one
        """Stage an effect in the open transaction."""
        with self._database.lock:
            self._usable().effects.append(effect)

    def abort(self) -> None:
        """Spoil the open transaction, as a statement that failed does."""
        with self._database.lock:
            self._usable().aborted = True

    def _by_itself(self, statement: Statement) -> Rows:
        transaction = self._database.begin()
        try:
            rows = self._statements(transaction, statement)
        except BaseException:
            self._database.rollback(transaction)
            raise
        self._database.commit(transaction)
        return rows

    def _inside(self, transaction: Transaction, statement: Statement) -> Rows:
        self._usable()
        try:
            return self._statements(transaction, statement)
        except SemelError:
            transaction.aborted = True
            raise

    def _usable(self) -> Transaction:
        if self.transaction is None:
            raise ClaimClosedError("no transaction of this claim is open")
        if self.transaction.aborted:
            raise StoreError("the transaction is aborted: only a rollback is possible")
        return self.transaction

    def _begin(self) -> None:
        if self.transaction is not None:
            raise StoreError("a transaction is open already")
        self.transaction = self._database.begin()

    def _commit(self) -> None:
        try:
            transaction = self._usable()
        except StoreError:
            self._rollback()
            raise
        self._database.commit(transaction)
        self.transaction = None

    def _rollback(self) -> None:
        if self.transaction is not None:
            self._database.rollback(self.transaction)
            self.transaction = None

    def _savepoint(self) -> None:
        self._usable().save()

    def _rollback_to(self) -> None:
        if self.transaction is None or self.transaction.savepoint is None:
            raise StoreError("there is no savepoint to go back to")
        self.transaction.restore()


class MemoryTx:
    """What a handler gets as `claim.tx`: a list that is committed with the answer."""

    def __init__(self, session: Session) -> None:
        """Made by the store; see `AsyncUnit.tx`."""
        self._session = session

    async def append(self, effect: Any) -> None:  # noqa: ANN401 - whatever it likes
        """Add an effect; it shows in `store.effects` when the claim is settled.

        Raises:
            ClaimClosedError: the claim's transaction is over.
        """
        self._session.append(effect)

    def abort(self) -> None:
        """Do what an error of a database does: the transaction can only be rolled back.

        For tests of a handler that swallows such an error.

        Raises:
            ClaimClosedError: the claim's transaction is over.
        """
        self._session.abort()


class AsyncUnit:
    """The connection of one claim; see `semel.store.protocol.AsyncUnit`.

    Attributes:
        session: the connection. A test that runs a statement on it does what a
            handler does behind the guard's back.
        touched: the application asked for `tx`.
    """

    def __init__(self, session: Session, *, interleave: bool) -> None:
        """Open no transaction yet."""
        self.session = session
        self._interleave = interleave
        self._left_open = False
        self._closed = False
        self._tx = MemoryTx(session)
        self.touched = False

    @property
    def tx(self) -> MemoryTx:
        """What the application stages its effects with."""
        self.touched = True
        return self._tx

    @property
    def begun(self) -> bool:
        """Whether a transaction is open now."""
        return self.session.transaction is not None

    @property
    def escaped(self) -> bool:
        """Whether the transaction that a program left open is not open any more."""
        return self._left_open and not self.begun

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program; writers are not queued here.

        Raises:
            ClaimClosedError: the unit is closed.
        """
        del writes
        if self._closed:
            raise ClaimClosedError("the claim is settled: its transaction is over")
        try:
            if self._interleave:
                return await apump(self._after_others, steps)
            return pump(self.session, steps)
        finally:
            self._left_open = self.begun

    async def close(self) -> None:
        """Roll back what is open."""
        self._closed = True
        self._left_open = False
        self.session(ROLLBACK)

    async def _after_others(self, statement: Statement) -> Rows:
        await asyncio.sleep(0)
        return self.session(statement)
