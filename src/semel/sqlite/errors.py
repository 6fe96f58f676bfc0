"""What SQLite's errors mean for a claim, judged by their codes.

Only errors of Semel's own statements are translated; those of the application's
statements reach it as they are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from semel.errors import (
    StoreConflictError,
    StoreError,
    StoreSchemaError,
    StoreUnavailableError,
)

# The low byte of an extended code is the kind of failure.
KIND = 0xFF
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
CONFLICT = BUSY | {sqlite3.SQLITE_CONSTRAINT}
ADVICE = {
    sqlite3.SQLITE_NOTADB: "is not a database of SQLite: give another path",
    sqlite3.SQLITE_READONLY: "can not be written: make the file and its folder writable",
    sqlite3.SQLITE_IOERR: "could not be read or written: look at the disk",
    sqlite3.SQLITE_FULL: "has no room left: free space on the disk",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it from a backup",
    sqlite3.SQLITE_CANTOPEN: "can not be opened: look at the rights of the file and its folder",
}
NO_SCHEMA = ("no such table", "no such column")


def kind(error: sqlite3.Error) -> int:
    """Return the primary result code, or 0 where the error did not come from SQLite."""
    return getattr(error, "sqlite_errorcode", 0) & KIND


def is_busy(error: sqlite3.Error) -> bool:
    """Say whether another connection was in the way, so that waiting may help."""
    return kind(error) in BUSY


def is_broken(error: BaseException | None) -> bool:
    """Say whether the connection that raised this should not be used again."""
    return isinstance(error, sqlite3.Error) and kind(error) in ADVICE


@contextmanager
def mapped(path: str, *, commit: bool = False) -> Iterator[None]:
    """Translate the errors of Semel's own statements.

    Args:
        path: the file, for the text of the error.
        commit: whether a failure to write may have left the commit behind.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path, commit=commit) from error


def translate(error: sqlite3.Error, path: str, *, commit: bool = False) -> StoreError:
    """Return what an error means for a claim; see `mapped`."""
    code = kind(error)
    if code in CONFLICT:
        return StoreConflictError(f"{path}: {error}")
    if str(error).startswith(NO_SCHEMA):
        return StoreSchemaError(
            f"Semel's tables are missing or old in {path}: run `semel migrate` ({error})"
        )
    if code == sqlite3.SQLITE_CANTOPEN and not Path(path).parent.is_dir():
        return StoreUnavailableError(f"{path} can not be opened: create its folder first")
    if code == sqlite3.SQLITE_CANTOPEN and Path(path).is_dir():
        return StoreUnavailableError(f"{path} is a folder: give the path of a file")
    if code in ADVICE:
        return StoreUnavailableError(
            f"{path} {ADVICE[code]} ({error})",
            outcome_unknown=commit and code == sqlite3.SQLITE_IOERR,
        )
    return StoreError(f"{path}: {error}")
