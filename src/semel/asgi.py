"""Middleware for every ASGI application: `IdempotencyMiddleware` (rule W1).

    app.add_middleware(IdempotencyMiddleware, guard=guard, scope=tenant_of)

It belongs innermost: what stands outside of it (compression, CORS, sessions,
rate limits) sees replays like any other answer; what stands inside runs once
per key. The framework's own authentication is inside too, so `scope` has to
verify the credential by itself (rule R2).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from semel.core.answer import extra_headers
from semel.core.headers import header_name
from semel.core.identity import Shared
from semel.core.key import Header
from semel.core.model import Answer
from semel.core.problem import BODY_TOO_LARGE, KEY_MALFORMED, KEY_MISSING
from semel.errors import BodyTooLargeError, KeyMalformedError, UsageError
from semel.web import access, keys
from semel.web.body import ClientGoneError, RequestBody
from semel.web.exchange import Exchange
from semel.web.problems import to_answer
from semel.web.request import Request

if TYPE_CHECKING:
    from semel.core.identity import Scope
    from semel.guard import AsyncGuard
    from semel.web.asgi_types import App, AsgiScope, Receive, Send


class Admission(Enum):
    """What becomes of a request that is not answered at once."""

    UNGUARDED = auto()
    RUN = auto()


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
        extra_headers(name.encode("latin-1", "replace") for name in guard.options.keep_headers)
        header_name(guard.options.replay_marker)
        self.app = app
        self.guard = guard
        self._scope = scope
        self._authorize = authorize

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        options = self.guard.options
        if (
            scope["type"] != "http"
            or not options.enabled
            or scope["method"].upper() not in options.methods
        ):
            await self.app(scope, receive, send)
            return
        headers = scope["headers"]
        with RequestBody(receive, options.max_request_bytes, tuple(headers)) as body:
            exchange = Exchange(self.guard, Request(scope, body), body, send)
            try:
                admitted = await self._admit(exchange)
            except ClientGoneError:
                return
            except KeyMalformedError as error:
                exchange.tell("refused", KEY_MALFORMED.name)
                admitted = to_answer(KEY_MALFORMED, options, detail=str(error))
            except BodyTooLargeError:
                exchange.tell("refused", BODY_TOO_LARGE.name)
                admitted = to_answer(BODY_TOO_LARGE, options)
            if admitted is Admission.RUN:
                await exchange.run(self.app, scope)
            elif admitted is Admission.UNGUARDED:
                await self.app(scope, body.receive if body.was_read else receive, send)
            else:
                await exchange.answer(admitted)

    async def _admit(self, exchange: Exchange) -> Answer | Admission:
        """Go through everything that comes before the handler, the cheap and safe first.

        Raises:
            KeyMalformedError: the key breaks its syntax.
            BodyTooLargeError: the body exceeds its limit.
            ClientGoneError: the client left before the body's end.
        """
        request, options = exchange.request, self.guard.options
        if options.when is not None:
            wanted = await access.ask(options.when, request, options)
            if isinstance(wanted, Answer):
                return wanted
            if not wanted:
                return Admission.UNGUARDED
        source, key = options.key, None
        if isinstance(source, Header):
            key = source.read(request.headers.raw, strict=options.strict_key)
            if key is None:
                return self._without_key(exchange)
        owner = await self._access(exchange)
        if isinstance(owner, Answer):
            return owner
        if not isinstance(source, Header):
            key = await keys.in_body(source, request)
        if key is None:
            return self._without_key(exchange)
        return await exchange.begin(owner, key) or Admission.RUN

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

    def _without_key(self, exchange: Exchange) -> Answer | Admission:
        if not self.guard.options.required:
            return Admission.UNGUARDED
        exchange.tell("refused", KEY_MISSING.name)
        return to_answer(KEY_MISSING, self.guard.options)
