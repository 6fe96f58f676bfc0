"""Semel: operations that are safe to repeat.

Retries are inevitable; with Semel their effects happen once, inside a boundary
that is clearly drawn: claim, effect and stored answer commit in one transaction
of the application's own database.

This package needs the standard library only. What needs a driver or a framework
is a module of its own: `semel.psycopg`, `semel.sqlite`, `semel.asgi`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from semel.claim import AsyncClaim
    from semel.core.identity import SHARED
    from semel.core.ids import derive_key
    from semel.core.model import Answer
    from semel.core.options import Options
    from semel.errors import (
        AccessRefusedError,
        ClaimClosedError,
        ClaimLostError,
        SemelError,
        StoreError,
        StoreUnavailableError,
        UsageError,
    )
    from semel.events import Event
    from semel.guard import AsyncGuard, current
    from semel.keys import new_key
    from semel.opening import open_async_store
    from semel.routing import options

# Loaded at first use (PEP 562): a client that only makes keys should not wait for
# the event loop to be imported.
_HOMES = {
    "SHARED": "semel.core.identity",
    "AccessRefusedError": "semel.errors",
    "Answer": "semel.core.model",
    "AsyncClaim": "semel.claim",
    "AsyncGuard": "semel.guard",
    "ClaimClosedError": "semel.errors",
    "ClaimLostError": "semel.errors",
    "Event": "semel.events",
    "Options": "semel.core.options",
    "SemelError": "semel.errors",
    "StoreError": "semel.errors",
    "StoreUnavailableError": "semel.errors",
    "UsageError": "semel.errors",
    "current": "semel.guard",
    "derive_key": "semel.core.ids",
    "new_key": "semel.keys",
    "open_async_store": "semel.opening",
    "options": "semel.routing",
}

__all__ = [
    "SHARED",
    "AccessRefusedError",
    "Answer",
    "AsyncClaim",
    "AsyncGuard",
    "ClaimClosedError",
    "ClaimLostError",
    "Event",
    "Options",
    "SemelError",
    "StoreError",
    "StoreUnavailableError",
    "UsageError",
    "current",
    "derive_key",
    "new_key",
    "open_async_store",
    "options",
]


def __getattr__(name: str) -> object:
    """Import a public name from its home."""
    if name not in _HOMES:
        message = f"module 'semel' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
