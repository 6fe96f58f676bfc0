"""A blocking connection on top of an asynchronous driver, for one background thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from semel.errors import StoreUnavailableError
from semel.store.protocol import Link
from semel.store.statement import Rows, Statement
from semel.store.unit import Wire

# Seconds for one statement of the heartbeat: what takes longer is tried again.
PATIENCE = 5.0


@contextmanager
def blocking_link(
    connect: Callable[[], Awaitable[Wire[Any]]], close: Callable[[Wire[Any]], Awaitable[None]]
) -> Iterator[Link]:
    """Connect in an event loop of the calling thread's own.

    Args:
        connect: opens a connection outside every pool; raises `StoreError`.
        close: closes it.
    """
    with asyncio.Runner() as runner:
        wire = runner.run(_in_time(connect()))

        def run(statement: Statement) -> Rows:
            return runner.run(_in_time(wire.run(statement)))

        try:
            yield run
        finally:
            with suppress(Exception):
                runner.run(_in_time(close(wire)))


async def _in_time(work: Awaitable[Any]) -> Any:  # noqa: ANN401 - whatever the work returns
    try:
        async with asyncio.timeout(PATIENCE):
            return await work
    except TimeoutError as error:
        message = f"the database did not answer within {PATIENCE:g} seconds"
        raise StoreUnavailableError(message, outcome_unknown=True) from error
