"""Claims in the database of a SQLAlchemy engine, and sessions that join them.

    engine = create_async_engine(URL)
    Session = semel.sqlalchemy.async_sessionmaker(engine)
    guard = semel.AsyncGuard(semel.sqlalchemy.AsyncStore(engine))

Handlers keep their sessions and their `commit()`: inside a guarded request a
session works in the claim's transaction, which the guard commits together with the
answer.

On SQLite (`sqlite+aiosqlite:///shop.db`) that transaction begins with BEGIN IMMEDIATE
at the handler's first statement, and while it is open every other writer of the file
waits: keep handlers short, or choose PostgreSQL.

Layout: `store` is one of `postgresql` and `sqlite`; `shared` lets sessions work on a
claim's connection, `parts` divides its transaction among them, `session` makes them
join. For SQLite, `effect` is one claim's connection, `lending` where it comes from,
and `thread` the thread that it lives in.
"""

from semel.sqlalchemy.session import Joining, JoiningSession, async_sessionmaker
from semel.sqlalchemy.store import AsyncStore

__all__ = ["AsyncStore", "Joining", "JoiningSession", "async_sessionmaker"]
