"""`route_class`: a route of FastAPI's whose requests are guarded (rules R2, W1).

Its two phases stand on both sides of FastAPI's own work. The shell, round the whole
route, reads the key and makes the exchange; the endpoint's wrapper claims the key
when all dependencies are solved. So whoever is refused by the application is
refused before a replay, and only what would have run is replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import Depends, params
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from semel.core.identity import SHARED, Shared
from semel.core.model import Answer
from semel.errors import UsageError
from semel.fastapi import endpoint as endpoints
from semel.fastapi.openapi import Described
from semel.fastapi.turn import ENTRY, Turn
from semel.guard import AsyncGuard
from semel.participants import gathering
from semel.routing import changes_of, mark_registered, name_of
from semel.web import admission
from semel.web.admission import Admission, Shell
from semel.web.notices import Notices
from semel.web.request import route_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from semel.web.exchange import Exchange

logger = logging.getLogger("semel")

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GuardedRoute(APIRoute):
    """A route of one guard's; made by `route_class`."""

    semel_guard: ClassVar[AsyncGuard[Any]]
    semel_depends: ClassVar[params.Depends]
    semel_notices: ClassVar[Notices]
    semel_shared: ClassVar[bool]

    def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:  # noqa: ANN401 - FastAPI's own
        """Make a route; it is one of FastAPI's own where nothing is to be guarded.

        Raises:
            UsageError: an option that was set by `semel.options` is unusable.
        """
        own = endpoints.original(endpoint)
        guard = self._guard_for(own)
        methods = {name.upper() for name in settings.get("methods") or ("GET",)}
        enabled = guard.options.enabled
        self.semel_methods = methods & guard.options.methods if enabled else frozenset()
        self.semel_shell = Shell(guard, self.semel_notices)
        self._streams = endpoints.is_stream(own)
        if not self.semel_methods:
            super().__init__(path, own, **settings)
            return
        described = Described(
            guard.options, optional=methods != self.semel_methods, shared=self.semel_shared
        )
        wrapper = endpoints.guarded(own, self.semel_depends, self.semel_shell)
        super().__init__(path, wrapper, **described.settings(settings))
        self.openapi_extra = described.operation(self)

    @classmethod
    def _guard_for(cls, endpoint: Callable[..., Any]) -> AsyncGuard[Any]:
        changes = changes_of(endpoint)
        mark_registered(endpoint)
        try:
            return cls.semel_guard.with_options(**changes) if changes else cls.semel_guard
        except UsageError as error:
            raise UsageError(f"options of {name_of(endpoint)}: {error}") from error

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that a router has matched."""
        if scope["method"] not in self.semel_methods:
            await super().handle(scope, receive, send)
        elif self.semel_shell.is_inside(scope):
            self._warn_of_nesting(scope)
            await super().handle(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        handle = super().handle
        turn: Turn | None = None

        async def admit(exchange: Exchange) -> Answer | Admission:
            nonlocal turn
            key = await admission.key_in_front(exchange)
            if isinstance(key, Answer | Admission):
                return key
            turn = Turn(exchange, self.semel_shell, key)
            return Admission.RUN

        async def inside(scope: Scope, receive: Receive, send: Send) -> None:
            if turn is None:
                await handle(scope, receive, send)
                return
            scope[ENTRY] = turn
            try:
                with gathering():
                    await handle(scope, receive, send)
            finally:
                del scope[ENTRY]

        await self.semel_shell.serve(inside, admit, scope, receive, send)

    def get_route_handler(self) -> Handler:
        """Return what makes the response; what streams is claimed for before its first piece."""
        handle = super().get_route_handler()
        if not (self._streams and self.semel_methods):
            return handle

        async def handler(request: Request) -> Response:
            response = await handle(request)
            turn: Turn | None = request.scope.get(ENTRY)
            if turn is None or turn.plan is not self.semel_shell:
                return response
            # Only this is what FastAPI makes of events, and runs in a task of its own.
            plain = type(response) is StreamingResponse
            events = plain and response.media_type == "text/event-stream"
            return await turn.admit(events=events) or response

        return handler

    def _warn_of_nesting(self, scope: Scope) -> None:
        route = route_of(scope)
        if self.semel_notices.first("nested", route):
            logger.warning(
                "%s is guarded twice: its key is claimed already by what stands outside, which "
                "answers replays before FastAPI authenticates; keep route_class, and exclude "
                "the route there",
                route,
            )


def route_class(
    guard: AsyncGuard[Any], *, scope: Callable[..., Any] | params.Depends | Shared
) -> type[APIRoute]:
    """Return a class of routes for `APIRouter(route_class=...)`.

    A request is guarded from its key's syntax to the last byte of its answer. First
    FastAPI does all of its own: dependencies, with the authentication among them, and
    validation. Whoever passes gets the stored answer, or claims the key and runs.
    A check made by a decorator of the endpoint, instead of a dependency, is part of
    the endpoint, and is not made for a replay.

    Args:
        guard: guards the routes; its options say which methods. `semel.options`
            changes them for one route.
        scope: a dependency, sync or async, with dependencies of its own: returns
            the verified owner of the key, a user's or tenant's id that never
            changes, as a text or a tuple of texts. It runs at every request of a
            guarded route. `Security(...)` is fine too. Or `semel.SHARED`, where all
            callers are one.

    Raises:
        UsageError: `guard`, `scope` or an option is unusable.
    """
    if not isinstance(guard, AsyncGuard):
        raise UsageError("route_class needs an AsyncGuard: FastAPI is asynchronous")
    depends = _depends(scope)
    notices = Notices()
    Shell(guard, notices)
    members = {
        "semel_guard": guard,
        "semel_depends": depends,
        "semel_notices": notices,
        "semel_shared": isinstance(scope, Shared),
    }
    return type("GuardedRoute", (GuardedRoute,), members)


def _depends(scope: object) -> params.Depends:
    """Return the dependency that gives a request's turn, and tells it what others found."""
    if isinstance(scope, Shared):

        async def turn_of_all(request: Request, response: Response) -> Turn | None:
            return _told(request, SHARED, response)

        return _own(turn_of_all)
    if not (callable(scope) or isinstance(scope, params.Depends)):
        raise UsageError("scope must be a FastAPI dependency (a function), or semel.SHARED")
    depends: Any = scope if isinstance(scope, params.Depends) else Depends(scope)

    async def turn_of(request: Request, response: Response, owner: Any = depends) -> Turn | None:  # noqa: ANN401 - checked later
        return _told(request, owner, response)

    return _own(turn_of)


def _own(function: Callable[..., Any]) -> params.Depends:
    depends: params.Depends = Depends(function)
    return depends


def _told(request: Request, owner: object, response: Response) -> Turn | None:
    turn: Turn | None = request.scope.get(ENTRY)
    if turn is not None:
        turn.owner, turn.extra = owner, response
    return turn
