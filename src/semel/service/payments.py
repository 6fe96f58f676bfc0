"""The table of payments: the effect that must happen once.

One class for each kind of store, behind one protocol. A row is written on the
transaction of the claim, which is the driver's own connection; reads go to
connections outside every claim, so that they see what is committed and nothing
else. Errors of the drivers come out as `StoreError`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from semel.errors import StoreSchemaError
from semel.opening import OpenedStore

TABLE = "payment"
COLUMNS = "id, client, amount, currency, metadata, key_digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """One payment.

    Attributes:
        id: made by the service.
        client: the name of the client that it belongs to.
        amount: in the smallest unit of the currency.
        currency: three letters.
        metadata: JSON text, or `None`.
        key_digest: the short digest of the key that it was made under.
        created_at: epoch seconds.
    """

    id: str
    client: str
    amount: int
    currency: str
    metadata: str | None
    key_digest: str
    created_at: float = 0.0


def new_id() -> str:
    """Return an id for a payment."""
    return f"pay_{uuid.uuid4().hex}"


class Payments(Protocol):
    """What the service does with payments."""

    async def migrate(self) -> None:
        """Make the table, if it is not there."""

    async def check(self) -> None:
        """Make sure that the table is there; raises `StoreSchemaError`."""

    async def add(self, tx: Any, payment: Payment) -> None:  # noqa: ANN401 - the driver's own
        """Write a payment on the transaction of the claim."""

    async def find(self, client: str, payment_id: str) -> Payment | None:
        """Return a client's payment; nobody sees another's."""

    async def newest(self, client: str, limit: int) -> Sequence[Payment]:
        """Return a client's payments, the newest first."""

    async def count(self) -> int:
        """Return how many there are, over all clients."""


def payments_in(store: OpenedStore[Any]) -> Payments:
    """Return the payments that live beside a store's claims."""
    match store.dialect:
        case "sqlite":
            return SqlitePayments(store)
        case "postgresql":
            return PostgresPayments(store)
        case _:
            return MemoryPayments(store)


class _SqlPayments:
    """What the two databases have in common: everything but how to read and to create."""

    mark: str  # how the driver writes a parameter
    created_at: str  # in epoch seconds

    def __init__(self, store: Any) -> None:  # noqa: ANN401 - see the subclasses
        self._store = store
        schema = store.tables.schema
        self._table = f'"{schema}".{TABLE}' if schema else TABLE
        # No part of these texts comes from a request.
        select = f"SELECT {COLUMNS}, {self.created_at} FROM {self._table}"  # noqa: S608
        marks = ", ".join([self.mark] * len(COLUMNS.split(", ")))
        self._insert = f"INSERT INTO {self._table} ({COLUMNS}) VALUES ({marks})"  # noqa: S608
        self._find = f"{select} WHERE client = {self.mark} AND id = {self.mark}"
        self._newest = (
            f"{select} WHERE client = {self.mark} ORDER BY created_at DESC, id LIMIT {self.mark}"
        )
        self._count = f"SELECT count(*) FROM {self._table}"  # noqa: S608

    def _mapped(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    async def _rows(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        raise NotImplementedError

    async def check(self) -> None:
        try:
            await self._rows(f"SELECT 1 FROM {self._table} LIMIT 1")  # noqa: S608
        except StoreSchemaError as error:
            raise StoreSchemaError(
                f"the service's table {TABLE} is missing: start it with --migrate"
            ) from error

    async def add(self, tx: Any, payment: Payment) -> None:  # noqa: ANN401 - the driver's own
        with self._mapped():
            await tx.execute(
                self._insert,
                (
                    payment.id,
                    payment.client,
                    payment.amount,
                    payment.currency,
                    payment.metadata,
                    payment.key_digest,
                ),
            )

    async def find(self, client: str, payment_id: str) -> Payment | None:
        rows = await self._rows(self._find, client, payment_id)
        return _payment(rows[0]) if rows else None

    async def newest(self, client: str, limit: int) -> Sequence[Payment]:
        return [_payment(row) for row in await self._rows(self._newest, client, limit)]

    async def count(self) -> int:
        return int((await self._rows(self._count))[0][0])


class SqlitePayments(_SqlPayments):
    """Payments in the file that also holds the claims."""

    mark = "?"
    created_at = "created_at"

    async def migrate(self) -> None:
        """Make the table, if it is not there."""
        await self._rows(
            f"CREATE TABLE IF NOT EXISTS {self._table} ("
            "id TEXT PRIMARY KEY, client TEXT NOT NULL, amount INTEGER NOT NULL, "
            "currency TEXT NOT NULL, metadata TEXT, key_digest TEXT NOT NULL, "
            "created_at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0)"
            ") STRICT"
        )
        await self._rows(
            f"CREATE INDEX IF NOT EXISTS payment_client ON {self._table} (client, created_at)"
        )

    def _mapped(self) -> AbstractContextManager[None]:
        from semel.sqlite.errors import mapped  # noqa: PLC0415 - only where SQLite is used

        return mapped(self._store.path)

    async def _rows(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        with self._mapped():
            async with self._store.connection() as connection:
                rows: Sequence[Sequence[Any]] = await connection.execute(sql, values)
                return rows


class PostgresPayments(_SqlPayments):
    """Payments in the database that also holds the claims."""

    mark = "%s"
    created_at = "CAST(extract(epoch FROM created_at) AS float8)"

    async def migrate(self) -> None:
        """Make the table, if it is not there; one process at a time."""
        with self._mapped():
            async with self._store.pool.connection() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext('semel payment'))")
                await connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {self._table} ("
                    "id text PRIMARY KEY, client text NOT NULL, amount bigint NOT NULL, "
                    "currency text NOT NULL, metadata text, key_digest text NOT NULL, "
                    "created_at timestamptz NOT NULL DEFAULT clock_timestamp())"
                )
                await connection.execute(
                    f"CREATE INDEX IF NOT EXISTS payment_client ON {self._table} "
                    "(client, created_at)"
                )

    def _mapped(self) -> AbstractContextManager[None]:
        from semel.psycopg import mapped  # noqa: PLC0415 - an optional extra

        return mapped()

    async def _rows(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        with self._mapped():
            async with self._store.pool.connection() as connection:
                cursor = await connection.execute(sql, values)
                rows: Sequence[Sequence[Any]] = await cursor.fetchall()
                return rows


class MemoryPayments:
    """Payments that end with the process."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401 - semel.memory.AsyncStore
        """Use the store's list of committed effects."""
        self._effects: Sequence[Payment] = store.effects

    async def migrate(self) -> None:
        """Do nothing."""

    async def check(self) -> None:
        """Do nothing."""

    async def add(self, tx: Any, payment: Payment) -> None:  # noqa: ANN401 - MemoryTx
        """Write a payment on the transaction of the claim."""
        await tx.append(replace(payment, created_at=time.time()))

    async def find(self, client: str, payment_id: str) -> Payment | None:
        """Return a client's payment."""
        own = (one for one in self._effects if one.client == client)
        return next((one for one in own if one.id == payment_id), None)

    async def newest(self, client: str, limit: int) -> Sequence[Payment]:
        """Return a client's payments, the newest first."""
        own = [one for one in self._effects if one.client == client]
        return own[::-1][:limit]

    async def count(self) -> int:
        """Return how many there are."""
        return len(self._effects)


def _payment(row: Sequence[Any]) -> Payment:
    return Payment(
        id=row[0],
        client=row[1],
        amount=row[2],
        currency=row[3],
        metadata=row[4],
        key_digest=row[5],
        created_at=row[6],
    )
