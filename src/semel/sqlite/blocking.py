"""One blocking connection to the file: how a statement is run, and how it waits.

SQLite's own busy handler can not be interrupted, so that waiting for another
process is done here: a statement outside a transaction that finds the file
locked took no effect and is tried again, until the patience of this hop is used
up. Inside a transaction nothing is ever repeated.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from semel.errors import StoreError, StoreUnavailableError, UsageError
from semel.sqlite.errors import is_busy, mapped
from semel.store.render import Texts
from semel.store.statement import Rows, Statement

T = TypeVar("T")
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
Tuples: TypeAlias = list[tuple[Any, ...]]

# UPDATE … FROM came with 3.33, RETURNING with 3.35, STRICT tables with 3.37.
OLDEST = (3, 37, 0)
# Seconds between two tries while another process writes, like SQLite's own.
PAUSES = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05)


class Connection:
    """A connection, used by one thread at a time.

    Attributes:
        stop: set from outside to give up before the next statement.
    """

    def __init__(
        self,
        path: str,
        texts: Texts,
        patience: float,
        *,
        any_thread: bool = False,
        opened: sqlite3.Connection | None = None,
    ) -> None:
        """Open the file, which is made if it is not there.

        Args:
            path: the file.
            texts: Semel's statements.
            patience: seconds of a hop to wait while the file is locked.
            any_thread: whether the connection may move between threads.
            opened: a connection that somebody else opened, to be used as it is.

        Raises:
            StoreUnavailableError: the file can not be used; the text says why.
        """
        if sqlite3.sqlite_version_info < OLDEST:
            raise UsageError(f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or newer is needed")
        self.path = path
        self.stop = threading.Event()
        self._texts = texts
        self._patience = patience
        self.be_patient()
        if opened is not None:
            self._connection = opened
            return
        with mapped(path):
            self._connection = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=not any_thread
            )
            try:
                self._set_up()
            except BaseException:
                self._connection.close()
                raise

    def _set_up(self) -> None:
        ((journal,),) = self.execute("PRAGMA journal_mode = WAL")
        if journal != "wal":
            raise StoreUnavailableError(
                f"{self.path} can not use write-ahead logging: keep it on a local disk"
            )
        # With NORMAL a power cut may take back commits that were acknowledged.
        self.execute("PRAGMA synchronous = FULL")

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, as SQLite sees it."""
        return self._connection.in_transaction

    def be_patient(self) -> None:
        """Begin a hop: it may wait for the file as long as the patience lasts."""
        self._deadline = time.monotonic() + self._patience

    def interrupt(self) -> None:
        """End the statement that runs now; called from another thread."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._connection.close()

    def run(self, statement: Statement) -> Rows:
        """Run one of Semel's statements; raises `StoreError`."""
        if statement.name == "rollback":
            with mapped(self.path):
                self.rollback()
            return ()
        sql, values = self._text(statement)
        with mapped(self.path, commit=statement.name == "commit"):
            return self.execute(sql, {name: _plain(value) for name, value in values.items()})

    def _text(self, statement: Statement) -> tuple[str, dict[str, Any]]:
        if statement.name == "raw":
            return statement.params["sql"], {}
        return self._texts.named(statement)

    def begin(self) -> None:
        """Open a transaction that may write; raises `StoreError`."""
        self.run(Statement("begin"))

    def rollback(self) -> None:
        """End the transaction, if one is open, with nothing changed."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def execute(self, sql: str, params: Parameters = ()) -> Tuples:
        """Run a statement of the application; raises what `sqlite3` raises."""
        return self._waiting(lambda: self._connection.execute(sql, params).fetchall())

    def executemany(self, sql: str, rows: Sequence[Parameters]) -> int:
        """Run a statement for each row: for all of them or for none.

        Returns:
            How many rows were changed.
        """
        if self.in_transaction:
            return self._connection.executemany(sql, rows).rowcount
        self.execute("BEGIN IMMEDIATE")
        try:
            changed = self._connection.executemany(sql, rows).rowcount
            self._connection.execute("COMMIT")
        except BaseException:
            self.rollback()
            raise
        return changed

    def _waiting(self, work: Callable[[], T]) -> T:
        tries = 0
        while True:
            if self.stop.is_set():
                raise StoreError("given up: whoever asked has been cancelled")
            try:
                return work()
            except sqlite3.OperationalError as error:
                left = self._deadline - time.monotonic()
                if self._connection.in_transaction or not is_busy(error) or left <= 0:
                    raise
            self.stop.wait(min(PAUSES[min(tries, len(PAUSES) - 1)], left))
            tries += 1


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a program passes
    """Turn a column of values into a JSON array, its bytes into hexadecimal."""
    if not isinstance(value, list):
        return value
    return json.dumps([one.hex().upper() if isinstance(one, bytes) else one for one in value])
