"""asyncpg's errors, translated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from semel.errors import ClaimLostError, StoreError, StoreUnavailableError
from semel.store.sqlstate import translate

FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)


@contextmanager
def mapped() -> Iterator[None]:
    """Translate asyncpg's errors by SQLSTATE, never by class."""
    try:
        yield
    except FAILURES as error:
        raise translated(error) from error


def translated(error: Exception) -> StoreError | ClaimLostError:
    """Return Semel's error for one of `FAILURES`."""
    if isinstance(error, asyncpg.PostgresError):
        return translate(error.sqlstate, error)
    return StoreUnavailableError(str(error) or type(error).__name__, outcome_unknown=True)
