"""Semel's statements on one asyncpg connection.

The transaction is one of asyncpg's own, so that the application's
`connection.transaction()` inside it gives savepoints. What COMMIT answers is never
looked at: after an error asyncpg commits "successfully". The completion before it
fails instead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from semel.asyncpg.errors import FAILURES, translated
from semel.asyncpg.inside import adopted, beneath, let_go, spare_reset
from semel.errors import StoreUnavailableError, UsageError
from semel.store.render import CONTROL, Texts
from semel.store.sqlstate import UNKNOWN
from semel.store.statement import count_rows
from semel.store.unit import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg import Connection as OwnConnection
    from asyncpg.pool import PoolConnectionProxy
    from asyncpg.transaction import Transaction

    from semel.store.statement import Rows, Statement

    Connection: TypeAlias = "OwnConnection[Any] | PoolConnectionProxy[Any]"


class Wire:
    """One connection; see `semel.store.unit.Wire`.

    Attributes:
        connection: the pool's proxy of it, or the connection itself.
        touched: false; the application has nothing but `tx`.
    """

    touched = False

    def __init__(
        self,
        connection: Connection,
        texts: Texts,
        isolation: Any = None,  # noqa: ANN401 - asyncpg's own words
        *,
        resets: bool = False,
    ) -> None:
        """Use a connection; nothing is sent.

        Args:
            connection: nobody else's now.
            texts: the statements.
            isolation: the level of transactions, as asyncpg spells it; the
                database's default where it is `None`.
            resets: send with COMMIT what a pool would send right after it, and spare
                it where the application had no part in what was sent.
        """
        self.connection = connection
        self._lent = False
        self._own = beneath(connection)
        self._texts = texts
        self._isolation = isolation
        self._resets = resets
        self._transaction: Transaction | None = None
        self._interrupted = False

    @property
    def tx(self) -> Connection:
        """The connection, inside the claim's transaction."""
        self._lent = True
        return self.connection

    @property
    def begun(self) -> bool:
        """Whether the database has a transaction open on this connection."""
        return not self._own.is_closed() and self._own.is_in_transaction()

    @property
    def escaped(self) -> bool:
        """Whether the handler ended the transaction with a statement of its own."""
        return self._transaction is not None and not self._own.is_closed() and not self.begun

    async def end(self) -> None:
        """Roll back what is open.

        Raises:
            StoreUnavailableError: a statement was cut short, and the database may
                still be about to run it.
        """
        if self._interrupted:
            raise StoreUnavailableError("the connection was left in the middle of a statement")
        transaction, self._transaction = self._transaction, None
        if transaction is not None and not self._own.is_closed():
            await transaction.rollback()
        if self.begun:
            await self._own.execute("ROLLBACK")
        if self._resets and not self._lent:
            spare_reset(self._own)  # Semel's own statements leave nothing behind

    async def run(self, statement: Statement) -> Rows:
        """Run one statement.

        Raises:
            StoreError, ClaimLostError: as `semel.store.protocol` says.
        """
        try:
            return await self._run(statement)
        except FAILURES as error:
            raise translated(error) from error
        except asyncio.CancelledError:
            self._interrupted = True
            raise

    async def _run(self, statement: Statement) -> Rows:
        if statement.name in CONTROL:
            await self._control(statement.name)
            return ()
        if statement.name == "script":
            return await self._script(statement.params["statements"])
        if statement.name == "raw":
            await self._own.execute(statement.params["sql"])
            return ()
        sql, values = self._texts.numbered(statement)
        rows: Rows = await self._own.fetch(sql, *values)
        return rows

    async def command(self, sql: str) -> object:
        """Send a text without parameters; raises asyncpg's own errors."""
        return await self._own.execute(sql)

    async def _script(self, statements: Sequence[Statement]) -> Rows:
        """Begin a transaction and send more in the same round trip."""
        transaction = self._new_transaction()
        await prepare(self._texts, statements, self._own, self._own.execute)
        begin, *rest = statements
        text = self._texts.script([begin])
        if self._isolation:
            text += f" ISOLATION LEVEL {self._isolation.replace('_', ' ')}"
        try:
            status = await self._own.execute(f"{text};{self._texts.script(rest)}")
        except asyncpg.PostgresError as error:
            if error.sqlstate == UNKNOWN:
                self._texts.prepared.discard(self._own)
            raise
        finally:
            if self.begun:
                self._transaction = adopted(transaction)
        return count_rows(status)

    def _new_transaction(self) -> Transaction:
        if self.begun:
            raise UsageError("the connection has a transaction open that is not Semel's")
        return self._own.transaction(isolation=self._isolation)

    async def _control(self, name: str) -> None:
        if name == "begin":
            transaction = self._new_transaction()
            await transaction.start()
            self._transaction = transaction
        elif name in ("savepoint", "rollback_to"):
            await self._own.execute(self._texts.control(name))
        else:
            transaction, self._transaction = self._transaction, None
            if transaction is None:
                return
            if name == "commit":
                await self._commit(transaction)
            else:
                await transaction.rollback()

    async def _commit(self, transaction: Transaction) -> None:
        if not self._resets:
            await transaction.commit()
            return
        let_go(transaction)
        await self._own.execute(f"COMMIT;{self._own.get_reset_query()}")
        spare_reset(self._own)
