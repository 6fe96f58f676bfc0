"""Stores that are broken on purpose, one fault each, and the suite applied to them.

pytest does not collect this file by itself: `test_broken.py` runs it and expects
the failures that stand in `CAUGHT_BY`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import Phase, settings

from conformance.harnesses import SqliteHarness
from semel import memory, sqlite
from semel.core.model import Identity, Mode, Status
from semel.testing.conformance import (
    Capabilities,
    Fidelity,
    Group,
    Leases,
    LifeCycle,
    MemoryHarness,
    Retention,
    StoreConformance,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from semel.store.statement import Rows

Values = dict[str, Any]

# The groups that have to fail, for each class below. Others may fail as well.
CAUGHT_BY: Mapping[str, set[str]] = {
    "TestGetThenPut": {"Contention", "Faults", "Differential"},
    "TestNoOwner": {"Leases", "Differential"},
    "TestEarlyTakeover": {"Leases"},
    "TestMismatchTakesOver": {"MismatchedRequests", "Differential"},
    "TestGreedyPurge": {"Retention", "Differential"},
    "TestSoundMemory": set(),
    "TestSqliteNoOwner": {"Leases"},
    "TestSqliteGreedyPurge": {"Retention"},
    "TestSqliteEmptyBody": {"Fidelity"},
    "TestSoundSqlite": set(),
}

# The same examples every time, and nobody reads the smallest one.
settings.register_profile(
    "broken", deadline=None, derandomize=True, database=None, phases=[Phase.generate]
)
settings.load_profile("broken")


def identity(values: Values) -> Identity:
    return Identity(values["scope"], values["key"])


class GetThenPut(memory.Statements):
    """Believes what the look before the insert has said."""

    def claim_insert(self, tx: memory.Transaction, values: Any) -> Rows:
        who, now = identity(values), self.database.clock()
        row = self.database.get(tx, who)
        if row is None or row.status is not Status.IN_PROGRESS or row.is_absent(now):
            return super().claim_insert(tx, values)
        self.database.rows.pop(who)
        (_,) = super().claim_insert(tx, values)
        self.database.put(tx, who, replace(self._written(tx, who), token=row.token + 1))
        return [(row.token + 1,)]

    def _written(self, tx: memory.Transaction, who: Identity) -> memory.Stored:
        row = self.database.get(tx, who)
        assert row is not None
        return row


class NoOwner(memory.Statements):
    """Completes a claim for whoever comes."""

    def claim_complete(self, tx: memory.Transaction, values: Any) -> Rows:
        row = self.database.get(tx, identity(values))
        owner = values["owner"] if row is None else row.owner
        return super().claim_complete(tx, {**values, "owner": owner})


class EarlyTakeover(memory.Statements):
    """Counts a lease as over a moment before it is."""

    def claim_insert(self, tx: memory.Transaction, values: Any) -> Rows:
        row = self.database.get(tx, identity(values))
        if row is not None and row.lease_expires_at is not None:
            left = row.lease_expires_at - self.database.clock()
            if 0 < left <= 2e-6:
                taken = {**values, "seen_owner": row.owner, "seen_token": row.token}
                self.database.put(tx, identity(values), replace(row, lease_expires_at=0.0))
                return super().claim_take(tx, taken)
        return super().claim_insert(tx, values)


class MismatchTakesOver(memory.Statements):
    """Takes a claim whose lease is over without comparing the requests."""

    def claim_insert(self, tx: memory.Transaction, values: Any) -> Rows:
        row = self.database.get(tx, identity(values))
        if row is not None and row.fp != values["fp"]:
            seen = {**values, "seen_owner": row.owner, "seen_token": row.token}
            taken = super().claim_take(tx, seen)
            if taken:
                return taken
        return super().claim_insert(tx, values)


class GreedyPurge(memory.Statements):
    """Deletes whatever is past its time, whether or not somebody is at work."""

    def claim_purge(self, tx: memory.Transaction, values: Any) -> Rows:
        now = self.database.clock()
        old = [who for who, row in self.database.visible(tx).items() if row.expires_at <= now]
        for who in old[: values["limit"]]:
            self.database.put(tx, who, None)
        return [(1,)] * len(old[: values["limit"]])


class GetThenPutStore(memory.AsyncStore):
    statements = GetThenPut
    reads_first = True


class NoOwnerStore(memory.AsyncStore):
    statements = NoOwner


class EarlyTakeoverStore(memory.AsyncStore):
    statements = EarlyTakeover


class MismatchTakesOverStore(memory.AsyncStore):
    statements = MismatchTakesOver


class GreedyPurgeStore(memory.AsyncStore):
    statements = GreedyPurge


class AlteredSqlite(sqlite.AsyncStore):
    """SQLite with one text of its SQL altered."""

    statement: ClassVar[str]
    sound: ClassVar[str]
    broken: ClassVar[str]

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        rendered = self._texts._rendered[self.statement]
        assert self.sound in rendered.sql
        altered = rendered.sql.replace(self.sound, self.broken)
        self._texts._rendered[self.statement] = replace(rendered, sql=altered)


class NoOwnerSqlite(AlteredSqlite):
    statement = "claim_complete"
    sound = "AND owner = :owner"
    broken = ""


class GreedyPurgeSqlite(AlteredSqlite):
    statement = "claim_purge"
    sound = "AND (status IN (1, 3)"
    broken = "AND (status IN (0, 1, 3)"


class EmptyBodySqlite(AlteredSqlite):
    """Takes no body and an empty one for the same thing."""

    statement = "claim_complete"
    sound = "body = :body"
    broken = "body = nullif(:body, x'')"


class OnMemory(Group):
    examples: ClassVar[int] = 100  # at most: a fault ends it
    kind: ClassVar[type[memory.AsyncStore]] = memory.AsyncStore
    capabilities = Capabilities(
        modes=(Mode.JOINED, Mode.ATOMIC), concurrent=True, clock_can_be_set=True
    )

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness(self.kind, interleave=True, modes=self.capabilities.modes)


class OnSqlite(Group):
    kind: ClassVar[type[sqlite.AsyncStore]] = sqlite.AsyncStore
    # Processes would find nothing here that threads do not, and take longer.
    capabilities = Capabilities(modes=(Mode.JOINED,), schema=True, clock_can_be_set=True)

    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path / "claims.db", self.kind)


class TestGetThenPut(OnMemory, StoreConformance):
    kind = GetThenPutStore
    # In mode atomic the lock would save it.
    capabilities = replace(OnMemory.capabilities, modes=(Mode.JOINED,))


class TestNoOwner(OnMemory, StoreConformance):
    kind = NoOwnerStore


class TestEarlyTakeover(OnMemory, StoreConformance):
    kind = EarlyTakeoverStore
    examples = 10  # of whole seconds, which do not show it


class TestMismatchTakesOver(OnMemory, StoreConformance):
    kind = MismatchTakesOverStore


class TestGreedyPurge(OnMemory, StoreConformance):
    kind = GreedyPurgeStore


class TestSoundMemory(OnMemory, StoreConformance):
    examples = 10  # test_memory runs more


class TestSqliteNoOwner(OnSqlite, LifeCycle, Leases):
    kind = NoOwnerSqlite


class TestSqliteGreedyPurge(OnSqlite, Retention):
    kind = GreedyPurgeSqlite


class TestSqliteEmptyBody(OnSqlite, Fidelity):
    kind = EmptyBodySqlite


class TestSoundSqlite(OnSqlite, LifeCycle, Leases, Retention, Fidelity):
    pass
