"""Semel's statements on one psycopg connection.

BEGIN, COMMIT and ROLLBACK are sent below the cursor: a rollback through it makes
psycopg forget every prepared statement of the connection, and a repeat that is
answered with a conflict or a replay ends in one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, generators
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import tuple_row

from semel.errors import StoreError, UsageError
from semel.psycopg.errors import FAILURES, translated
from semel.store.render import CONTROL, Texts
from semel.store.sqlstate import UNKNOWN
from semel.store.statement import Rows, Statement, count_rows
from semel.store.unit import prepare

Connection = AsyncConnection[Any]

REFUSED = ("commit", "rollback", "set_autocommit")
OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR, TransactionStatus.ACTIVE)


class Wire:
    """One connection; see `semel.store.unit.Wire`.

    Attributes:
        tx: the connection, inside the claim's transaction.
        touched: false; the application has nothing but `tx`.
    """

    touched = False

    def __init__(self, connection: Connection, texts: Texts) -> None:
        """Use a connection; nothing is sent."""
        self.tx = connection
        self._texts = texts
        self._autocommit = connection.autocommit
        self._in_program_transaction = False

    @property
    def begun(self) -> bool:
        """Whether the database has a transaction open on this connection."""
        return self.tx.info.transaction_status in OPEN

    @property
    def escaped(self) -> bool:
        """Whether the handler ended the transaction with a statement of its own."""
        return (
            self._in_program_transaction
            and self.tx.info.transaction_status == TransactionStatus.IDLE
        )

    async def start(self) -> None:
        """Keep psycopg from beginning transactions by itself; nothing is sent."""
        if not self._autocommit:
            await self.tx.set_autocommit(True)

    async def end(self) -> None:
        """Roll back what is open and leave the connection as it was found."""
        _allow(self.tx)
        if self.begun:
            await _command(self.tx, b"ROLLBACK")
        if not self._autocommit:
            await self.tx.set_autocommit(False)

    async def run(self, statement: Statement) -> Rows:
        """Run one statement.

        Raises:
            StoreError, ClaimLostError: as `semel.store.protocol` says.
        """
        try:
            return await self._run(statement)
        except FAILURES as error:
            raise translated(error) from error

    async def _run(self, statement: Statement) -> Rows:
        if statement.name in CONTROL:
            await self._control(statement.name)
            return ()
        if statement.name == "script":
            return await self._script(statement.params["statements"])
        if statement.name == "raw":
            await _command(self.tx, statement.params["sql"].encode())
            return ()
        sql, values = self._texts.numbered(statement)
        cursor = AsyncRawCursor(self.tx, row_factory=tuple_row)
        await cursor.execute(sql, values, binary=True)
        return await cursor.fetchall() if cursor.description else ()

    async def command(self, sql: str) -> object:
        """Send a text without parameters; raises psycopg's own errors."""
        return await _command(self.tx, sql.encode())

    async def _script(self, statements: Sequence[Statement]) -> Rows:
        """Begin a transaction and send more in the same round trip."""
        await prepare(self._texts, statements, self.tx, self.command)
        _, *rest = statements
        try:
            status = await self._begin(
                b";" + self._texts.script(rest).encode(self.tx.info.encoding)
            )
        except psycopg.Error as error:
            if error.sqlstate == UNKNOWN:
                self._texts.prepared.discard(self.tx)
            raise
        return count_rows(status.decode())

    async def _begin(self, more: bytes = b"") -> bytes:
        sql = self._texts.control("begin").encode()
        level = self.tx.isolation_level
        if level is not None:
            sql += b" ISOLATION LEVEL " + level.name.replace("_", " ").encode()
        try:
            return await _command(self.tx, sql + more)
        finally:
            if self.begun:
                self._in_program_transaction = True
                _refuse(self.tx)

    async def _control(self, name: str) -> None:
        if name == "begin":
            await self._begin()
            return
        sql = self._texts.control(name).encode()
        if name in ("commit", "rollback"):
            self._in_program_transaction = False
            _allow(self.tx)
        done = await _command(self.tx, sql)
        if name == "commit" and done != b"COMMIT":
            message = "the transaction was aborted before: nothing was committed"
            raise StoreError(message)


async def _command(connection: Connection, sql: bytes) -> bytes:
    """Send one text without parameters; returns the database's word for it."""
    async with connection.lock:
        return await connection.wait(_send(connection, sql))


def _send(connection: Connection, sql: bytes) -> PQGen[bytes]:
    connection.pgconn.send_query(sql)
    results = yield from generators.execute(connection.pgconn)
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, encoding=connection.info.encoding)
    return results[-1].command_status or b""


def _refuse(connection: Connection) -> None:
    """Keep the application from ending a transaction that is not its own (rule W2)."""
    vars(connection).update(REFUSALS)


def _allow(connection: Connection) -> None:
    for name in REFUSED:
        vars(connection).pop(name, None)


def _refusal(name: str) -> Callable[..., Awaitable[None]]:
    async def refuse(*_: object) -> None:
        message = (
            f"{name}() on a claim's connection: Semel commits effect and answer together "
            "when the handler returns; for a part that may be undone use "
            "`async with connection.transaction()`"
        )
        raise UsageError(message)

    return refuse


REFUSALS = {name: _refusal(name) for name in REFUSED}
