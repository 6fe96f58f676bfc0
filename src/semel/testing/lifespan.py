"""An ASGI application's lifespan, so that it is checked as a server would run it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from semel.check.wire.asgi import App, Message

START_LIMIT = 30.0


class StartFailedError(Exception):
    """The application said that it can not start; the text is its own."""


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[dict[str, Any]]:
    """Start an application, and stop it at the end; yields what it keeps as state.

    An application without lifespan events is taken as it is (ASGI 3, lifespan protocol).

    Raises:
        StartFailedError: it answered `lifespan.startup.failed`.
    """
    incoming: asyncio.Queue[Message] = asyncio.Queue()
    outgoing: asyncio.Queue[Message] = asyncio.Queue()
    state: dict[str, Any] = {}
    scope = {
        "type": "lifespan",
        "asgi": {"version": "3.0", "spec_version": "2.0"},
        "state": state,
    }
    task = asyncio.create_task(_run(app, scope, incoming, outgoing))
    incoming.put_nowait({"type": "lifespan.startup"})
    began = await _next(outgoing, task)
    if began is not None and began["type"] == "lifespan.startup.failed":
        await asyncio.wait({task})
        raise StartFailedError(began.get("message") or "the application failed to start")
    try:
        yield state
    finally:
        if began is not None:
            incoming.put_nowait({"type": "lifespan.shutdown"})
            await _next(outgoing, task)
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


async def _run(
    app: App,
    scope: dict[str, Any],
    incoming: asyncio.Queue[Message],
    outgoing: asyncio.Queue[Message],
) -> None:
    await app(scope, incoming.get, outgoing.put)


async def _next(outgoing: asyncio.Queue[Message], task: asyncio.Task[None]) -> Message | None:
    """Return the application's next word, or None if it ends without one."""
    word = asyncio.ensure_future(outgoing.get())
    await asyncio.wait({word, task}, timeout=START_LIMIT, return_when=asyncio.FIRST_COMPLETED)
    if word.done():
        return word.result()
    word.cancel()
    return None
