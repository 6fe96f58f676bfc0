"""The memory store as a harness: the model of the others, and a store to be tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel.memory import AsyncStore as MemoryStore
from semel.memory import MemoryTx
from semel.store.statement import Statement
from semel.store.tables import Tables
from semel.testing.conformance.harness import Harness


class MemoryHarness(Harness[MemoryTx]):
    """Stores that share their claims by name and clock, as databases do by address."""

    def __init__(self, kind: type[MemoryStore] = MemoryStore, **options: Any) -> None:  # noqa: ANN401 - the store's own
        """Make no store yet.

        Args:
            kind: the store's class.
            options: what it is made with.
        """
        self._kind = kind
        self._options = options
        self._stores: dict[object, MemoryStore] = {}

    def store(
        self, *, clock: Callable[[], float] | None = None, tables: Tables | None = None
    ) -> MemoryStore:
        """Return the one store there is for these names and this clock."""
        name = (clock, tables or Tables())
        if name not in self._stores:
            self._stores[name] = self._kind(clock=clock, tables=tables, **self._options)
        return self._stores[name]

    async def prepare(self) -> None:
        """Do nothing: effects need no table."""

    async def write_effect(self, tx: MemoryTx, value: str) -> None:
        """Stage an effect."""
        await tx.append(value)

    async def effects(self) -> list[str]:
        """Return what is committed in all stores."""
        return [effect for store in self._stores.values() for effect in store.effects]

    async def fail(self, tx: MemoryTx) -> None:
        """Complete a claim that nobody holds: an error aborts the transaction."""
        values = {"scope": b"", "key": b"", "owner": b"", "proof": None}
        tx._session(Statement("claim_complete", values))  # noqa: SLF001 - there is no other way
