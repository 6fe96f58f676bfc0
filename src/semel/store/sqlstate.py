"""What an error of PostgreSQL means to a claim, whichever driver reports it (rule A6).

By SQLSTATE, never by a library's class: SQLAlchemy wraps 22012 as one class over
one driver and as another over the next.
"""

from __future__ import annotations

from semel.errors import (
    ClaimLostError,
    StoreConflictError,
    StoreError,
    StoreSchemaError,
    StoreUnavailableError,
)

# A script referred to a prepared statement that the connection does not know.
UNKNOWN = "26000"
CONFLICT = frozenset({"40001", "40P01", "55P03", "23505", UNKNOWN})
NO_SCHEMA = frozenset({"42P01", "42703", "3F000"})
# Terminated, shutting down, starting up, out of resources, read-only, idle too long.
UNAVAILABLE = ("08", "53", "57P", "58", "25006", "25P03", "57014")


def translate(state: str | None, error: BaseException) -> StoreError | ClaimLostError:
    """Return the error that Semel raises for one of a driver's.

    Args:
        state: the SQLSTATE; without one the connection itself failed.
        error: the driver's error, for the text.
    """
    lines = str(error).splitlines()
    text = f"{state or ''} {lines[0] if lines else type(error).__name__}".strip()
    if state == "22012":
        return ClaimLostError("the claim was not this owner's any more: nothing was completed")
    if not state or state.startswith(UNAVAILABLE):
        return StoreUnavailableError(text, outcome_unknown=True)
    if state in CONFLICT:
        return StoreConflictError(text)
    if state in NO_SCHEMA:
        return StoreSchemaError(f"Semel's tables are missing or old, run `semel migrate` ({text})")
    return StoreError(text)
