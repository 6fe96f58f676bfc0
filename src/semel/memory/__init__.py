"""Claims in this process's memory: `semel.memory.AsyncStore()`.

The executable model of every other store: the same programs run over statements
that are small Python functions on a dictionary, judged by the predicates of
`semel.core.decide`. For tests and for trying things out: nothing outlives the
process, and no other process takes part.

Layout: `table` holds the rows, transactions and locks, `statements` one function
for each statement, `store` lends connections.
"""

from __future__ import annotations

from semel.memory.statements import Statements
from semel.memory.store import AsyncStore, AsyncUnit, MemoryTx
from semel.memory.table import Database, Stored, Transaction

__all__ = [
    "AsyncStore",
    "AsyncUnit",
    "Database",
    "MemoryTx",
    "Statements",
    "Stored",
    "Transaction",
]
