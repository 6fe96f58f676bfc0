"""Middleware for every ASGI application: `IdempotencyMiddleware` (rule W1).

    app.add_middleware(IdempotencyMiddleware, guard=guard, scope=tenant_of)

It belongs innermost: what stands outside of it (compression, CORS, sessions,
rate limits) sees replays like any other answer; what stands inside runs once
per key. The framework's own authentication is inside too, so `scope` has to
verify the credential by itself (rule R2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.identity import Shared
from semel.core.model import Answer
from semel.errors import UsageError
from semel.web import access, admission
from semel.web.admission import Admission
from semel.web.notices import Notices
from semel.web.security import warn_of_security

if TYPE_CHECKING:
    from semel.core.identity import Scope
    from semel.guard import AsyncGuard
    from semel.web.asgi_types import App, AsgiScope, Receive, Send
    from semel.web.exchange import Exchange


class IdempotencyMiddleware:
    """Guards the requests of an ASGI application."""

    def __init__(
        self,
        app: App,
        guard: AsyncGuard[Any],
        *,
        scope: access.ScopeFunction | Shared,
        authorize: access.AuthorizeFunction | None = None,
    ) -> None:
        """Wrap an application.

        Args:
            app: the application.
            guard: guards all of it; its options say which requests.
            scope: called with the `Request`, sync or async: returns the verified
                owner of the key, a user's or tenant's id that never changes, as
                a text or a tuple of texts; or raises `AccessRefusedError`. Or
                `semel.SHARED`, where all callers are one.
            authorize: called with the `Request`, sync or async: false refuses
                with 403, even where an answer is stored.

        Raises:
            UsageError: `scope` or an option is unusable.
        """
        if not (isinstance(scope, Shared) or callable(scope)):
            raise UsageError("scope must be a function of the request, or semel.SHARED")
        self.app = app
        self.guard = guard
        self._scope = scope
        self._authorize = authorize
        self._shell = admission.Shell(guard, Notices())

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve one connection; the first is, with most servers, the start-up."""
        options = self.guard.options
        if options.enabled:
            warn_of_security(self._shell.notices, self.app, options.methods)
        if (
            scope["type"] != "http"
            or not options.enabled
            or scope["method"].upper() not in options.methods
            or self._shell.is_inside(scope)
        ):
            await self.app(scope, receive, send)
            return
        await self._shell.serve(self.app, self._admit, scope, receive, send)

    async def _admit(self, exchange: Exchange) -> Answer | Admission:
        """Go through everything that comes before the handler, the cheap and safe first.

        Raises:
            KeyMalformedError: the key breaks its syntax.
            BodyTooLargeError: the body exceeds its limit.
            ClientGoneError: the client left before the body's end.
        """
        key = await admission.key_in_front(exchange)
        if isinstance(key, Answer | Admission):
            return key
        owner = await self._access(exchange)
        if isinstance(owner, Answer):
            return owner
        return await admission.claim(exchange, owner, key)

    async def _access(self, exchange: Exchange) -> Scope | Answer:
        """Find out who owns the key, and refuse who may not see its answer."""
        request, options = exchange.request, self.guard.options
        owner = await access.scope_of(self._scope, request, options)
        refusal = owner if isinstance(owner, Answer) else None
        if refusal is None:
            refusal = await access.refusal_of(self._authorize, request, options)
        if refusal is None:
            return owner
        exchange.tell("refused", str(refusal.status))
        return refusal
