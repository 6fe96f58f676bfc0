"""psycopg's errors, translated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from semel.errors import ClaimLostError, StoreError, StoreUnavailableError
from semel.store.sqlstate import translate


@contextmanager
def mapped() -> Iterator[None]:
    """Translate psycopg's errors by SQLSTATE, never by class."""
    try:
        yield
    except (PoolTimeout, PoolClosed, TooManyRequests) as error:
        message = f"no database connection to be had: {error}"
        raise StoreUnavailableError(message) from error
    except psycopg.Error as error:
        raise _translated(error) from error
    except OSError as error:
        raise StoreUnavailableError(str(error), outcome_unknown=True) from error


def _translated(error: psycopg.Error) -> StoreError | ClaimLostError:
    broken = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if error.sqlstate or broken:
        return translate(error.sqlstate, error)
    return StoreError(str(error) or type(error).__name__)
