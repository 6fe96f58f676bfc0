"""Claims in a file of SQLite: `semel.sqlite.AsyncStore(path)`.

The handler's `claim.tx` is an `AsyncConnection`, thin and asynchronous over the
standard library's `sqlite3`:

    await claim.tx.execute("INSERT INTO payment (amount) VALUES (?)", [500])

SQLite has one writer at a time. The effect's transaction therefore opens at the
handler's first statement, and while it is open every other writer of the file
waits: keep handlers short, or choose PostgreSQL.

Layout: `blocking` is one connection and its statements, `worker` the thread that
it lives in, `pool` lends workers and queues the writers, `unit` is one claim's
use of them, `store` puts them together.
"""

from __future__ import annotations

from semel.sqlite.store import AsyncStore
from semel.sqlite.unit import AsyncConnection, AsyncUnit

__all__ = ["AsyncConnection", "AsyncStore", "AsyncUnit"]
