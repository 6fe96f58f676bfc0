"""A store for the time of one command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from semel.opening import OpenedStore, open_async_store
from semel.store.tables import Tables


def try_once(store: OpenedStore[Any]) -> None:
    """Connect by itself first: a pool says that it waited, but not what for."""
    with store.link():
        pass


@asynccontextmanager
async def connected(url: str, tables: Tables) -> AsyncIterator[OpenedStore[Any]]:
    """Connect to a store and close it afterwards.

    Raises:
        UsageError: the address has no form that is known.
        StoreUnavailableError: the store can not be reached; the text says why.
    """
    store = open_async_store(url, tables=tables, max_connections=2)
    await asyncio.to_thread(try_once, store)
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()
