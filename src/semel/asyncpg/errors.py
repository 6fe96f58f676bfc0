"""asyncpg's errors, translated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from semel.errors import StoreUnavailableError
from semel.store.sqlstate import translate


@contextmanager
def mapped() -> Iterator[None]:
    """Translate asyncpg's errors by SQLSTATE, never by class."""
    try:
        yield
    except asyncpg.PostgresError as error:
        raise translate(error.sqlstate, error) from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
        text = str(error) or type(error).__name__
        raise StoreUnavailableError(text, outcome_unknown=True) from error
