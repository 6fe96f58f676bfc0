"""Rows, transactions and locks: as much of a database as claims can notice.

A transaction writes to an overlay that nobody else sees until it commits, and
reads what is committed at the moment of each statement (READ COMMITTED). Where a
database would wait for a row that another transaction has written, this one
gives up at once with a conflict, as after a lock time-out. An error inside a
transaction leaves it aborted: only a rollback is possible then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from semel.core.decide import is_absent
from semel.core.model import Found, Identity, Mode, Status
from semel.errors import StoreConflictError


@dataclass(frozen=True, slots=True)
class Stored:
    """A row of the claim table; the columns are described in `sql/`."""

    mode: Mode
    status: Status
    fp: bytes
    raw: bytes
    recipe: str
    owner: bytes
    token: int
    lease_expires_at: float | None
    created_at: float
    expires_at: float
    answer_status: int | None = None
    headers: bytes | None = None
    body: bytes | None = None

    def found(self, now: float) -> Found:
        """Return what the predicates of `semel.core.decide` are asked about."""
        return Found(
            mode=self.mode,
            status=self.status,
            digest=self.fp,
            raw=self.raw,
            recipe=self.recipe,
            owner=self.owner,
            token=self.token,
            lease_expires_at=self.lease_expires_at,
            expires_at=self.expires_at,
            answer=None,
            now=now,
        )

    def is_absent(self, now: float) -> bool:
        """Say whether the row counts as no claim at all."""
        return is_absent(self.found(now))


@dataclass(eq=False, slots=True)
class Transaction:
    """What a transaction has changed and locked so far.

    Attributes:
        rows: the overlay; `None` where a row was deleted.
        locks: advisory locks.
        effects: what the application appended.
        versions: migrations that it recorded.
        proof: a value that lives as long as the transaction.
        aborted: an error happened in it.
        savepoint: the rows, locks and effects as they were then.
    """

    rows: dict[Identity, Stored | None] = field(default_factory=dict)
    locks: set[int] = field(default_factory=set)
    effects: list[Any] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    proof: str | None = None
    aborted: bool = False
    savepoint: tuple[dict[Identity, Stored | None], set[int], list[Any]] | None = None

    def save(self) -> None:
        """Remember this moment."""
        self.savepoint = (dict(self.rows), set(self.locks), list(self.effects))

    def restore(self) -> None:
        """Go back to the moment that was remembered, and keep it."""
        if self.savepoint is not None:
            rows, locks, effects = self.savepoint
            self.rows, self.locks, self.effects = dict(rows), set(locks), list(effects)
            self.aborted = False


@dataclass(eq=False, slots=True)
class Database:
    """What is committed, and which transactions are open.

    Attributes:
        clock: the store's time, in epoch seconds.
        rows: the committed claims.
        effects: the committed effects, in the order of their commits.
        versions: the migrations that were recorded.
        lock: held by whoever touches anything here.
    """

    clock: Callable[[], float]
    rows: dict[Identity, Stored] = field(default_factory=dict)
    effects: list[Any] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _open: set[Transaction] = field(default_factory=set)

    def begin(self) -> Transaction:
        """Open a transaction."""
        transaction = Transaction()
        self._open.add(transaction)
        return transaction

    def commit(self, transaction: Transaction) -> None:
        """Make everything that a transaction did visible at once."""
        self._open.discard(transaction)
        for identity, row in transaction.rows.items():
            if row is None:
                self.rows.pop(identity, None)
            else:
                self.rows[identity] = row
        self.effects.extend(transaction.effects)
        self.versions.extend(transaction.versions)

    def rollback(self, transaction: Transaction) -> None:
        """Forget everything that a transaction did."""
        self._open.discard(transaction)

    def visible(self, transaction: Transaction) -> dict[Identity, Stored]:
        """Return all rows that a transaction sees."""
        seen: dict[Identity, Stored | None] = {**self.rows, **transaction.rows}
        return {identity: row for identity, row in seen.items() if row is not None}

    def get(self, transaction: Transaction, identity: Identity) -> Stored | None:
        """Return one row as a transaction sees it."""
        if identity in transaction.rows:
            return transaction.rows[identity]
        return self.rows.get(identity)

    def is_locked(self, transaction: Transaction, identity: Identity) -> bool:
        """Say whether another open transaction has written this row."""
        return any(identity in other.rows for other in self._open if other is not transaction)

    def put(self, transaction: Transaction, identity: Identity, row: Stored | None) -> None:
        """Write or delete a row.

        Raises:
            StoreConflictError: another open transaction has written it.
        """
        self.wait_for(transaction, identity)
        transaction.rows[identity] = row

    def wait_for(self, transaction: Transaction, identity: Identity) -> None:
        """Give up where a database would wait for another transaction to end."""
        if self.is_locked(transaction, identity):
            raise StoreConflictError("another transaction has written this row")

    def try_lock(self, transaction: Transaction, number: int) -> bool:
        """Take an advisory lock until the transaction ends, if nobody else has it."""
        if any(number in other.locks for other in self._open if other is not transaction):
            return False
        transaction.locks.add(number)
        return True
