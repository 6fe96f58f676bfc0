"""One function for each statement of `sql/<dialect>/`, by the same name.

A test that needs a broken store overrides one of them:

    class Careless(Statements):
        def claim_complete(self, tx, values): ...   # does not compare the owner

    class CarelessStore(semel.memory.AsyncStore):
        statements = Careless
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from semel.core.decide import lease_is_over
from semel.core.model import Identity, Mode, Status
from semel.errors import ClaimLostError, StoreConflictError
from semel.memory.table import Database, Stored, Transaction
from semel.store.statement import Rows, Statement

Values: TypeAlias = Mapping[str, Any]
Run: TypeAlias = Callable[[Transaction, Values], Rows]


class Statements:
    """The statements that change or read rows; `BEGIN` and the like are the connection's."""

    def __init__(self, database: Database) -> None:
        """Work on this database."""
        self.database = database

    def __call__(self, tx: Transaction, statement: Statement) -> Rows:
        """Run one statement in a transaction; whoever calls this holds the lock."""
        function: Run = getattr(self, statement.name)
        return function(tx, statement.params)

    def claim_open(self, tx: Transaction, values: Values) -> Rows:
        """Claim a key in the transaction that will carry the effect (atomic)."""
        if not self.database.try_lock(tx, values["lock"]):
            return ()
        tx.proof = values["proof"]
        identity, now = _identity(values), self.database.clock()
        self.database.wait_for(tx, identity)
        row = self.database.get(tx, identity)
        if row is None:
            return self._write(tx, identity, _new(values, 1, now))
        # An abandoned joined claim is for claim_take, whose judge has seen it.
        if row.is_absent(now) and row.status is not Status.IN_PROGRESS:
            return self._write(tx, identity, _new(values, row.token + 1, now))
        return ()

    def claim_insert(self, tx: Transaction, values: Values) -> Rows:
        """Claim a key in a commit of its own (joined)."""
        identity = _identity(values)
        if self.database.get(tx, identity) is not None:
            return ()
        self.database.wait_for(tx, identity)
        return self._write(tx, identity, _new(values, 1, self.database.clock()))

    def claim_look(self, tx: Transaction, values: Values) -> Rows:
        """Read a claim; changes no row."""
        row = self.database.get(tx, _identity(values))
        if row is None:
            return ()
        open_atomic = row.mode is Mode.ATOMIC and row.status is Status.IN_PROGRESS
        lock = values["lock"]
        unheld = open_atomic and lock is not None and self.database.try_lock(tx, lock)
        return [
            (
                row.mode.value,
                row.status.value,
                row.fp,
                row.raw,
                row.recipe,
                row.owner,
                row.token,
                row.lease_expires_at,
                row.answer_status,
                row.headers,
                row.body,
                row.expires_at,
                self.database.clock(),
                unheld,
            )
        ]

    def claim_lock(self, tx: Transaction, values: Values) -> Rows:
        """Take the lock of a claim that was made in another mode."""
        return [(self.database.try_lock(tx, values["lock"]),)]

    def claim_take(self, tx: Transaction, values: Values) -> Rows:
        """Take over exactly the row that was looked at, unless it is locked."""
        identity, now = _identity(values), self.database.clock()
        row = self.database.get(tx, identity)
        if row is None or self.database.is_locked(tx, identity):
            return ()
        if (row.owner, row.token) != (values["seen_owner"], values["seen_token"]):
            return ()
        found = row.found(now)
        abandoned = (
            row.status is Status.IN_PROGRESS and row.mode is Mode.JOINED and lease_is_over(found)
        )
        if not (row.is_absent(now) or abandoned):
            return ()
        return self._write(tx, identity, _new(values, row.token + 1, now))

    def effect_open(self, tx: Transaction, values: Values) -> Rows:
        """Begin the effect's transaction of a joined claim."""
        tx.proof = values["proof"]
        return [(None, tx.proof, None)]

    def effect_proof(self, tx: Transaction, values: Values) -> Rows:
        """Compare the open transaction with the one that `effect_open` began."""
        return [(tx.proof == values["proof"],)]

    def claim_complete(self, tx: Transaction, values: Values) -> Rows:
        """Store the answer, or raise: an update of nothing could be committed."""
        identity, now = _identity(values), self.database.clock()
        row = self._owned(tx, values)
        if row is None or values["proof"] not in (None, tx.proof):
            raise ClaimLostError("the claim was not this owner's any more: nothing was completed")
        completed = replace(
            row,
            status=Status.COMPLETED,
            answer_status=values["answer_status"],
            headers=values["headers"],
            body=values["body"],
            lease_expires_at=None,
            expires_at=now + values["retention"],
        )
        return self._write(tx, identity, completed)

    def claim_release(self, tx: Transaction, values: Values) -> Rows:
        """Give a claim back; its row keeps the token."""
        row = self._owned(tx, values)
        if row is None:
            return ()
        expires_at = self.database.clock() + values["retention"]
        released = replace(
            row, status=Status.RELEASED, lease_expires_at=None, expires_at=expires_at
        )
        return self._write(tx, _identity(values), released)

    def claim_doubt(self, tx: Transaction, values: Values) -> Rows:
        """Record that nobody knows whether the effect happened."""
        row = self._owned(tx, values)
        if row is None:
            return ()
        doubtful = replace(row, status=Status.IN_DOUBT, lease_expires_at=None, expires_at=math.inf)
        return self._write(tx, _identity(values), doubtful)

    def claim_renew(self, tx: Transaction, values: Values) -> Rows:
        """Extend leases, passing over rows that somebody has locked."""
        renewed: list[tuple[bytes]] = []
        for (identity, row), lease in zip(self._asked(tx, values), values["leases"], strict=True):
            if row is None or self.database.is_locked(tx, identity):
                continue
            extended = replace(row, lease_expires_at=self.database.clock() + lease)
            self._write(tx, identity, extended)
            renewed.append((row.owner,))
        return renewed

    def claim_owned(self, tx: Transaction, values: Values) -> Rows:
        """Say which of these claims are still their owners'."""
        return [(row.owner,) for _, row in self._asked(tx, values) if row is not None]

    def claim_purge(self, tx: Transaction, values: Values) -> Rows:
        """Delete claims that count as absent and are past their time."""
        now = self.database.clock()
        old = [
            (row.expires_at, identity)
            for identity, row in self.database.visible(tx).items()
            if row.is_absent(now)
            and row.expires_at <= now
            and not self.database.is_locked(tx, identity)
        ]
        old.sort(key=lambda entry: entry[0])
        for _, identity in old[: values["limit"]]:
            self.database.put(tx, identity, None)
        return [(1,)] * len(old[: values["limit"]])

    def claim_list(self, tx: Transaction, values: Values) -> Rows:
        """List the newest claims first."""
        rows = sorted(
            self.database.visible(tx).items(),
            key=lambda entry: (-entry[1].created_at, entry[0].scope, entry[0].key),
        )
        return [
            (
                identity.scope,
                identity.key,
                row.mode.value,
                row.status.value,
                row.token,
                row.created_at,
                row.lease_expires_at,
                row.expires_at,
                row.answer_status,
                None if row.body is None else len(row.body),
            )
            for identity, row in rows[: values["limit"]]
        ]

    def version_lock(self, tx: Transaction, values: Values) -> Rows:
        """Let one migration in at a time."""
        if not self.database.try_lock(tx, values["lock"]):
            raise StoreConflictError("another migration is running")
        return [(None,)]

    def version_look(self, tx: Transaction, values: Values) -> Rows:
        """Return the newest version that was recorded."""
        del values
        return [(max((*self.database.versions, *tx.versions), default=0),)]

    def version_add(self, tx: Transaction, values: Values) -> Rows:
        """Record a version."""
        tx.versions.append(values["version"])
        return ()

    def raw(self, tx: Transaction, values: Values) -> Rows:
        """Ignore the text of a migration: there are no tables to make."""
        del tx, values
        return ()

    def _owned(self, tx: Transaction, values: Values) -> Stored | None:
        """Return the claim in progress if it is this owner's."""
        identity = _identity(values)
        self.database.wait_for(tx, identity)
        return self._of(tx, identity, values["owner"])

    def _of(self, tx: Transaction, identity: Identity, owner: bytes) -> Stored | None:
        row = self.database.get(tx, identity)
        if row is None or row.owner != owner or row.status is not Status.IN_PROGRESS:
            return None
        return row

    def _asked(self, tx: Transaction, values: Values) -> Iterator[tuple[Identity, Stored | None]]:
        for scope, key, owner in zip(
            values["scopes"], values["keys"], values["owners"], strict=True
        ):
            identity = Identity(scope, key)
            yield identity, self._of(tx, identity, owner)

    def _write(self, tx: Transaction, identity: Identity, row: Stored) -> Rows:
        self.database.put(tx, identity, row)
        return [(row.token,)]


def _identity(values: Values) -> Identity:
    return Identity(values["scope"], values["key"])


def _new(values: Values, token: int, now: float) -> Stored:
    mode = Mode(values["mode"])
    atomic = mode is Mode.ATOMIC
    return Stored(
        mode=mode,
        status=Status.IN_PROGRESS,
        fp=values["fp"],
        raw=values["raw"],
        recipe=values["recipe"],
        owner=values["owner"],
        token=token,
        lease_expires_at=None if atomic else now + values["lease"],
        created_at=now,
        expires_at=math.inf if atomic else now + values["retention"],
    )
