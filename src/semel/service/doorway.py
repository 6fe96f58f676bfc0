"""What stands outside the guard: who is inside, and failures that were planned."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from semel.service.answers import problem
from semel.service.faults import PlannedFailureError


class Visitors:
    """Counts the requests that are inside."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._count = 0
        self._nobody = asyncio.Event()
        self._nobody.set()

    def __enter__(self) -> None:
        """Let one in."""
        self._count += 1
        self._nobody.clear()

    def __exit__(self, *_: object) -> None:
        """Let one out."""
        self._count -= 1
        if not self._count:
            self._nobody.set()

    async def gone(self, seconds: float) -> None:
        """Wait until nobody is inside, but no longer than this.

        A server that ends cancels what it can not wait for, and goes on at once;
        those requests still have to give their keys back.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nobody.wait()


class Doorway:
    """The outermost middleware of the guarded route."""

    def __init__(self, app: ASGIApp, visitors: Visitors) -> None:
        """Stand before an application."""
        self._app = app
        self._visitors = visitors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a planned failure has gone through the guard as an exception."""
        with self._visitors:
            try:
                await self._app(scope, receive, send)
            except PlannedFailureError as error:
                answer = problem(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), retryable=True)
                await answer(scope, receive, send)
