"""Semel's statements on one asyncpg connection.

The transaction is one of asyncpg's own, so that the application's
`connection.transaction()` inside it gives savepoints. What COMMIT answers is never
looked at: after an error asyncpg commits "successfully". The completion before it
fails instead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from semel.asyncpg.errors import mapped
from semel.errors import StoreUnavailableError, UsageError
from semel.store.unit import CONTROL

if TYPE_CHECKING:
    from asyncpg import Connection as OwnConnection
    from asyncpg.pool import PoolConnectionProxy
    from asyncpg.transaction import Transaction

    from semel.store.render import Texts
    from semel.store.statement import Rows, Statement

    Connection: TypeAlias = "OwnConnection[Any] | PoolConnectionProxy[Any]"


class Wire:
    """One connection; see `semel.store.unit.Wire`.

    Attributes:
        tx: the connection, inside the claim's transaction.
        touched: false; the application has nothing but `tx`.
    """

    touched = False

    def __init__(self, connection: Connection, texts: Texts, isolation: Any = None) -> None:  # noqa: ANN401 - asyncpg's own words
        """Use a connection; nothing is sent.

        Args:
            connection: nobody else's now.
            texts: the statements.
            isolation: the level of transactions, as asyncpg spells it; the
                database's default where it is `None`.
        """
        self.tx = connection
        self._texts = texts
        self._isolation = isolation
        self._transaction: Transaction | None = None
        self._interrupted = False

    @property
    def begun(self) -> bool:
        """Whether the database has a transaction open on this connection."""
        return not self.tx.is_closed() and self.tx.is_in_transaction()

    @property
    def escaped(self) -> bool:
        """Whether the handler ended the transaction with a statement of its own."""
        return self._transaction is not None and not self.tx.is_closed() and not self.begun

    async def end(self) -> None:
        """Roll back what is open.

        Raises:
            StoreUnavailableError: a statement was cut short, and the database may
                still be about to run it.
        """
        if self._interrupted:
            raise StoreUnavailableError("the connection was left in the middle of a statement")
        transaction, self._transaction = self._transaction, None
        if transaction is not None and not self.tx.is_closed():
            await transaction.rollback()
        if self.begun:
            await self.tx.execute("ROLLBACK")

    async def run(self, statement: Statement) -> Rows:
        """Run one statement.

        Raises:
            StoreError, ClaimLostError: as `semel.store.protocol` says.
        """
        try:
            with mapped():
                return await self._run(statement)
        except asyncio.CancelledError:
            self._interrupted = True
            raise

    async def _run(self, statement: Statement) -> Rows:
        if statement.name in CONTROL:
            await self._control(statement.name)
            return ()
        if statement.name == "raw":
            await self.tx.execute(statement.params["sql"])
            return ()
        sql, values = self._texts.numbered(statement)
        rows: Rows = await self.tx.fetch(sql, *values)
        return rows

    async def command(self, sql: str) -> object:
        """Send a text without parameters; raises asyncpg's own errors."""
        return await self.tx.execute(sql)

    async def _control(self, name: str) -> None:
        if name == "begin":
            if self.begun:
                raise UsageError("the connection has a transaction open that is not Semel's")
            transaction = self.tx.transaction(isolation=self._isolation)
            await transaction.start()
            self._transaction = transaction
        elif name in ("savepoint", "rollback_to"):
            await self.tx.execute(self._texts.control(name))
        else:
            transaction, self._transaction = self._transaction, None
            if transaction is not None:
                await (transaction.commit() if name == "commit" else transaction.rollback())
