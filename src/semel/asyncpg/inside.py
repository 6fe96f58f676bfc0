"""What Semel touches inside asyncpg, to send in one round trip what asyncpg sends in two.

Nothing depends on it but speed: where a release of asyncpg looks different, `ADOPTS` or
`spares_resets` is false, and the longer way is taken.
"""

from __future__ import annotations

from typing import Any

import asyncpg
from asyncpg.connresource import ConnectionResource
from asyncpg.transaction import Transaction, TransactionState

ADOPTS = {"_connection", "_state"} <= vars(Transaction).keys() | vars(ConnectionResource).keys()


def beneath(connection: Any) -> Any:  # noqa: ANN401 - its inside is asyncpg's own
    """Return the connection beneath a pool's proxy, which a pool may let go of at any time."""
    return getattr(connection, "_con", None) or connection


def adopted(transaction: Any) -> Transaction:  # noqa: ANN401
    """Tell asyncpg that a transaction was begun, which it would not send by itself.

    The application's own `connection.transaction()` inside it gives savepoints then.
    """
    transaction._connection._top_xact = transaction  # noqa: SLF001
    transaction._state = TransactionState.STARTED  # noqa: SLF001
    return transaction


def let_go(transaction: Any) -> None:  # noqa: ANN401
    """Tell asyncpg that a transaction is over, which it did not end by itself."""
    transaction._connection._top_xact = None  # noqa: SLF001
    transaction._state = TransactionState.COMMITTED  # noqa: SLF001


def spares_resets(pool: asyncpg.Pool[Any]) -> bool:
    """Say whether the reset of a pool's connections may be sent together with a COMMIT.

    Not where the application resets in its own way.
    """
    own = getattr(pool, "_connection_class", None)
    plain = getattr(own, "get_reset_query", None) is asyncpg.Connection.get_reset_query
    slots = "_reset_query" in vars(asyncpg.Connection).get("__slots__", ())
    return ADOPTS and plain and slots and getattr(pool, "_reset", asyncpg) is None


def spare_reset(connection: Any) -> None:  # noqa: ANN401
    """Let the pool believe, at the next release, that there is nothing to reset."""
    if not isinstance(connection._reset_query, _Spared):  # noqa: SLF001
        connection._reset_query = _Spared(connection)  # noqa: SLF001


async def release(pool: asyncpg.Pool[Any], proxy: Any) -> None:  # noqa: ANN401
    """Give a connection back whose reset is spared.

    A pool does this in a task of its own, which a cancellation can not reach. Here
    nothing is waited for, so nothing can be cancelled.
    """
    holder = getattr(proxy, "_holder", None)
    spared = isinstance(getattr(beneath(proxy), "_reset_query", None), _Spared)
    if holder is None or not spared:
        await pool.release(proxy)
    else:
        await holder.release(None)


class _Spared(str):
    """A reset query that was run already: nothing at the first look, itself again after it."""

    __slots__ = ("_connection",)
    _connection: Any

    def __new__(cls, connection: Any) -> _Spared:  # noqa: ANN401, PYI034 - one place makes it
        spared = super().__new__(cls, connection.get_reset_query())
        spared._connection = connection
        return spared

    def __bool__(self) -> bool:
        self._connection._reset_query = str(self)  # noqa: SLF001
        return False
