"""What stands outside the guard: the answer to a failure that was planned."""

from __future__ import annotations

from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from semel.service.answers import problem
from semel.service.faults import PlannedFailureError


class Doorway:
    """The outermost middleware of the guarded route."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a planned failure has gone through the guard as an exception."""
        try:
            await self._app(scope, receive, send)
        except PlannedFailureError as error:
            answer = problem(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), retryable=True)
            await answer(scope, receive, send)
