"""Claims in PostgreSQL through psycopg 3: `semel.psycopg.AsyncStore(pool)`.

The handler's `claim.tx` is a plain `psycopg.AsyncConnection` from the
application's own pool. While Semel's transaction is open, its `commit`,
`rollback` and `set_autocommit` refuse; `connection.transaction()` gives nested
savepoints as usual. A COMMIT sent as SQL text can not be refused: it is
detected when the claim is settled.
"""

from semel.psycopg.errors import mapped
from semel.psycopg.store import AsyncStore, AsyncUnit

__all__ = ["AsyncStore", "AsyncUnit", "mapped"]
