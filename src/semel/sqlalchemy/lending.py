"""Lends connections of an engine on SQLite, each with the effect's transaction begun on it.

Writers of one process queue on the lock that Semel's own writers queue on, and only
who has come to the front takes a connection out of the engine's pool (rule A9).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import greenlet_spawn

from semel.errors import StoreUnavailableError, UsageError
from semel.sqlalchemy.errors import mapped
from semel.sqlalchemy.parts import CLAIM_SAVEPOINT
from semel.sqlalchemy.thread import DriverThread
from semel.sqlite import AsyncStore as FileStore
from semel.sqlite.blocking import Connection
from semel.sqlite.errors import mapped as mapped_file
from semel.sqlite.worker import INSIST, Worker, finish
from semel.store.render import Texts

Level: TypeAlias = Literal["DEFERRED", "IMMEDIATE", "EXCLUSIVE"] | None

# Python 3.12 and newer; before, there was nothing else.
LEGACY: int | None = getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL", None)


class Loan:
    """A connection of the engine's, while a claim has it.

    Attributes:
        pooled: SQLAlchemy's own proxy of it.
        worker: carries work to the thread that it lives in.
    """

    def __init__(
        self,
        pooled: Any,  # noqa: ANN401 - SQLAlchemy's own
        path: str,
        texts: Texts,
        patience: float,
        let_next_in: Callable[[], None],
    ) -> None:
        """Use a connection; nothing is sent yet.

        Args:
            pooled: SQLAlchemy's own proxy of it.
            path: the file that it has to be open on.
            texts: Semel's statements.
            patience: seconds to wait while other processes write.
            let_next_in: ends the place at the front of the writers.
        """
        self.pooled = pooled
        self.let_next_in = let_next_in
        self._path = path
        self._thread = DriverThread(pooled.driver_connection)
        self.worker = Worker(
            lambda: Connection(path, texts, patience, opened=self._thread.raw), self._thread
        )
        self._found: tuple[Level, Any] | None = None
        self._switch = threading.Lock()
        self._leaving = False

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, as SQLite sees it."""
        try:
            return self._thread.raw.in_transaction
        except StoreUnavailableError:
            return False

    def begin(self, connection: Connection) -> None:
        """Begin the effect's transaction; called in the connection's thread.

        Raises:
            UsageError: the connection is open on another file, or in a transaction.
            StoreError: the transaction can not begin.
        """
        raw = self._thread.raw
        refuse_other_file(raw, self._path)
        with mapped_file(self._path):
            self._take_control(raw)
            # Waiting is done by `Connection`, which can be interrupted.
            ((timeout,),) = raw.execute("PRAGMA busy_timeout").fetchall()
            raw.execute("PRAGMA busy_timeout = 0").fetchall()
            try:
                connection.begin()
            finally:
                raw.execute(f"PRAGMA busy_timeout = {timeout:d}").fetchall()
            raw.execute(f"SAVEPOINT {CLAIM_SAVEPOINT}")

    def interrupt(self) -> None:
        """Make a statement that runs now fail soon; nobody waits for it."""
        with self._switch, suppress(StoreUnavailableError):
            if not self._leaving:
                self._thread.raw.interrupt()

    async def end(self) -> None:
        """Roll back what is open and leave the connection as it was found."""
        future = asyncio.wrap_future(self._thread.submit(self._leave))
        while not future.done():
            await asyncio.wait({future}, timeout=INSIST)
            self.interrupt()
        future.result()

    def _take_control(self, raw: sqlite3.Connection) -> None:
        """Have Python begin a transaction before a change, where none is open.

        A statement that comes when the claim's is over is rolled back then, whatever
        the engine's owner has chosen.
        """
        autocommit = getattr(raw, "autocommit", None)
        implicit = autocommit is False  # Python keeps one open all the time
        self._found = raw.isolation_level, autocommit
        if autocommit != LEGACY:
            raw.autocommit = LEGACY  # type: ignore[attr-defined] # since Python 3.12
        if implicit and raw.in_transaction:
            raw.execute("ROLLBACK")
        if raw.in_transaction:
            raise UsageError("the engine's connection has a transaction open that is not Semel's")
        if raw.isolation_level is None:
            raw.isolation_level = "DEFERRED"

    def _leave(self) -> None:
        with self._switch:
            self._leaving = True
        raw = self._thread.raw
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        if self._found is not None:
            raw.isolation_level, autocommit = self._found
            if autocommit != LEGACY:
                raw.autocommit = autocommit  # type: ignore[attr-defined] # since Python 3.12


class Lender:
    """Where claims get the connection for their effect from."""

    def __init__(self, engine: AsyncEngine, file: FileStore, texts: Texts, patience: float) -> None:
        """Borrow nothing yet.

        Args:
            engine: whose connections are lent.
            file: Semel's own connections to the same file.
            texts: Semel's statements.
            patience: seconds to wait while other processes write.
        """
        self._engine = engine
        self._file = file
        self._texts = texts
        self._patience = patience

    async def lend(self) -> Loan:
        """Wait for the writers ahead, take a connection, and begin.

        Raises:
            StoreConflictError: other writers took too long.
            StoreUnavailableError: no connection could be had.
            UsageError: the engine's connections can not be used.
        """
        let_next_in = await self._file.line_up()
        try:
            pooled = await self._check_out()
        except BaseException:
            let_next_in()
            raise
        loan = Loan(pooled, self._file.path, self._texts, self._patience, let_next_in)
        try:
            await loan.worker.hop(loan.begin)
        except BaseException:
            await finish(asyncio.ensure_future(self.take_back(loan, broken=False)))
            raise
        return loan

    async def take_back(self, loan: Loan, *, broken: bool) -> None:
        """Roll back what is open, and give the connection to the pool; raises no error.

        Args:
            loan: what was lent.
            broken: close the connection instead, because somebody may still use it.
        """
        try:
            try:
                await loan.end()
            except Exception:  # noqa: BLE001 - in doubt: closing it rolls back
                broken = True
            with suppress(Exception):
                await greenlet_spawn(loan.pooled.invalidate if broken else loan.pooled.close)
        finally:
            loan.let_next_in()

    async def check(self) -> None:
        """Make sure that a connection can be had, and is open on the file.

        Raises:
            StoreUnavailableError: no connection could be had.
            UsageError: it is open on another file.
        """
        pooled = await self._check_out()
        try:
            thread = DriverThread(pooled.driver_connection)
            job = thread.submit(lambda: refuse_other_file(thread.raw, self._file.path))
            await asyncio.wrap_future(job)
        finally:
            await greenlet_spawn(pooled.close)

    async def _check_out(self) -> Any:  # noqa: ANN401 - SQLAlchemy's own proxy
        with mapped(self._file.path):
            return await greenlet_spawn(self._engine.sync_engine.raw_connection)


def refuse_other_file(raw: sqlite3.Connection, path: str) -> None:
    """Make sure that a connection is open on the file that holds the claims.

    Raises:
        UsageError: it is open on another one.
    """
    files = {name: file for _, name, file in raw.execute("PRAGMA database_list")}
    found = files["main"]
    if found != path and not (found and Path(found).resolve() == Path(path).resolve()):
        raise UsageError(
            f"the engine's address names {path}, but its connections are open on "
            f"{found or 'a database in memory'}: claim and effect must be in one file"
        )
