"""psycopg's errors, translated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from semel.errors import ClaimLostError, StoreError, StoreUnavailableError
from semel.store.sqlstate import translate

FAILURES = (psycopg.Error, PoolTimeout, PoolClosed, TooManyRequests, OSError)


@contextmanager
def mapped() -> Iterator[None]:
    """Translate psycopg's errors by SQLSTATE, never by class."""
    try:
        yield
    except FAILURES as error:
        raise translated(error) from error


def translated(error: Exception) -> StoreError | ClaimLostError:
    """Return Semel's error for one of `FAILURES`."""
    if isinstance(error, PoolTimeout | PoolClosed | TooManyRequests):
        return StoreUnavailableError(f"no database connection to be had: {error}")
    if not isinstance(error, psycopg.Error):
        return StoreUnavailableError(str(error), outcome_unknown=True)
    broken = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if error.sqlstate or broken:
        return translate(error.sqlstate, error)
    return StoreError(str(error) or type(error).__name__)
