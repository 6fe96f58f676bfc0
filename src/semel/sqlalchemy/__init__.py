"""Claims in the database of a SQLAlchemy engine, and sessions that join them.

    engine = create_async_engine(URL)
    Session = semel.sqlalchemy.async_sessionmaker(engine)
    guard = semel.AsyncGuard(semel.sqlalchemy.AsyncStore(engine))

Handlers keep their sessions and their `commit()`: inside a guarded request a
session works in the claim's transaction, which the guard commits together with the
answer.
"""

from semel.sqlalchemy.session import Joining, JoiningSession, async_sessionmaker
from semel.sqlalchemy.store import AsyncStore

__all__ = ["AsyncStore", "Joining", "JoiningSession", "async_sessionmaker"]
