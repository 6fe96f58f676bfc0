"""SQLAlchemy's errors, and those of the drivers below it, translated."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from semel.errors import ClaimLostError, SemelError, StoreError, StoreUnavailableError
from semel.sqlite import errors as sqlite
from semel.store.sqlstate import translate


@contextmanager
def mapped(database: str = "the database") -> Iterator[None]:
    """Translate by SQLSTATE or SQLite's code, never by class.

    Whatever else goes wrong between a session and its database comes out as
    `StoreError`: a claim must be settled whatever happens.

    Args:
        database: its name, for the text of an error.
    """
    try:
        yield
    except SemelError:
        raise
    except exc.TimeoutError as error:
        message = f"no database connection to be had: {error}"
        raise StoreUnavailableError(message) from error
    except Exception as error:
        raise _translated(error, database) from error


def _translated(error: Exception, database: str) -> StoreError | ClaimLostError:
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    if isinstance(cause, SemelError):  # raised by a joined connection, wrapped on its way
        return cause if isinstance(cause, StoreError) else StoreError(str(cause))
    if isinstance(cause, sqlite3.Error):
        return sqlite.translate(cause, database)
    state = getattr(cause, "sqlstate", None)
    if state:
        return translate(state, cause or error)
    broken = isinstance(error, exc.DBAPIError) and error.connection_invalidated
    if broken or isinstance(cause, OSError):
        return StoreUnavailableError(str(cause), outcome_unknown=True)
    return StoreError(f"{type(error).__name__}: {error}")
