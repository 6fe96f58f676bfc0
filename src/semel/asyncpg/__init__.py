"""Claims in PostgreSQL through asyncpg: `semel.asyncpg.AsyncStore(pool)`.

The handler's `claim.tx` is a connection of the application's own pool, inside the
claim's transaction; `connection.transaction()` gives savepoints in it. A COMMIT
sent as SQL text can not be refused: it is detected when the claim is settled.
"""

from semel.asyncpg.store import AsyncStore

__all__ = ["AsyncStore"]
