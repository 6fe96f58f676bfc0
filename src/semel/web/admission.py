"""What a request goes through before its handler, whatever framework serves it.

The order is that of rules K2 and R2: the syntax of the key comes first, because it
costs nothing and tells nothing; then whoever authenticates; then the claim. A
middleware does all of it at once, a route stops in the middle for its framework.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias

from semel.core.answer import extra_headers
from semel.core.headers import header_name
from semel.core.key import Header
from semel.core.model import Answer
from semel.core.problem import BODY_TOO_LARGE, KEY_MALFORMED, KEY_MISSING
from semel.errors import BodyTooLargeError, KeyMalformedError
from semel.web import access, keys
from semel.web.body import ClientGoneError, RequestBody
from semel.web.exchange import Exchange
from semel.web.problems import to_answer
from semel.web.request import Request

if TYPE_CHECKING:
    from semel.core.identity import Scope
    from semel.guard import AsyncGuard
    from semel.web.asgi_types import App, AsgiScope, Receive, Send
    from semel.web.notices import Notices


class Admission(Enum):
    """What becomes of a request that is not answered at once."""

    UNGUARDED = auto()
    RUN = auto()


Outcome: TypeAlias = Answer | Admission
Step: TypeAlias = Callable[[Exchange], Awaitable[Outcome]]


class Shell:
    """What stands between the server and what a guard guards.

    Attributes:
        guard: guards it.
        notices: what the application was told already.
    """

    def __init__(self, guard: AsyncGuard[Any], notices: Notices) -> None:
        """Stand before an application, or one of its routes.

        Raises:
            UsageError: an option names a header that a guarded answer could not have.
        """
        options = guard.options
        extra_headers(name.encode("latin-1", "replace") for name in options.keep_headers)
        header_name(options.replay_marker)
        self.guard = guard
        self.notices = notices

    def is_inside(self, scope: AsgiScope) -> bool:
        """Say whether the request is guarded already, with a claim in the same store.

        To claim twice would take two transactions, and with the same key and owner
        the request would wait for itself.
        """
        outer = scope.get("semel")
        return isinstance(outer, Exchange) and outer.holds_claim_in(self.guard.store)

    async def serve(
        self, app: App, admit: Step, scope: AsgiScope, receive: Receive, send: Send
    ) -> None:
        """Serve one request of a guarded method.

        Args:
            app: runs inside the exchange, or past it.
            admit: decides which.
            scope: the server's, with the two callables that go with it.
            receive: likewise.
            send: likewise.
        """
        limit = self.guard.options.max_request_bytes
        with RequestBody(receive, limit, scope["headers"]) as body:
            exchange = Exchange(self.guard, Request(scope, body), body, send, self.notices)
            try:
                outcome = await answered(exchange, admit)
            except ClientGoneError:
                return
            if outcome is Admission.RUN:
                await exchange.run(app, scope)
            elif outcome is Admission.UNGUARDED:
                await app(scope, body.receive if body.was_read else receive, send)
            else:
                await exchange.answer(outcome)


async def answered(exchange: Exchange, step: Step) -> Outcome:
    """Take a step; what is wrong with the request is an answer too.

    Raises:
        ClientGoneError: the client left before the body's end.
    """
    options = exchange.guard.options
    try:
        return await step(exchange)
    except KeyMalformedError as error:
        exchange.tell("refused", KEY_MALFORMED.name)
        return to_answer(KEY_MALFORMED, options, detail=str(error))
    except BodyTooLargeError:
        exchange.tell("refused", BODY_TOO_LARGE.name)
        return to_answer(BODY_TOO_LARGE, options)


async def key_in_front(exchange: Exchange) -> str | Outcome | None:
    """Return the key in the request's header, before anybody is asked who calls.

    Returns:
        The key; `None` where the options look for it elsewhere; or what becomes of
        the request without one.

    Raises:
        KeyMalformedError: the key breaks its syntax.
        BodyTooLargeError: `when` read the body, and it exceeds its limit.
        ClientGoneError: likewise, and the client left before its end.
    """
    request, options = exchange.request, exchange.guard.options
    if options.when is not None:
        wanted = await access.ask(options.when, request, options)
        if isinstance(wanted, Answer):
            return wanted
        if not wanted:
            return Admission.UNGUARDED
    if not isinstance(options.key, Header):
        return None
    key = options.key.read(request.headers.raw, strict=options.strict_key)
    return _without_key(exchange) if key is None else key


async def claim(exchange: Exchange, owner: Scope, key: str | None) -> Outcome:
    """Claim the key for its owner, once the caller is known.

    Args:
        exchange: the request.
        owner: who owns the key, verified.
        key: `None` where it is still to be found in the body.

    Raises:
        KeyMalformedError: the key breaks its syntax.
        BodyTooLargeError: the body exceeds its limit.
        ClientGoneError: the client left before the body's end.
    """
    source = exchange.guard.options.key
    if key is None and not isinstance(source, Header):
        key = await keys.in_body(source, exchange.request)
    if key is None:
        return _without_key(exchange)
    return await exchange.begin(owner, key) or Admission.RUN


def _without_key(exchange: Exchange) -> Outcome:
    options = exchange.guard.options
    if not options.required:
        return Admission.UNGUARDED
    exchange.tell("refused", KEY_MISSING.name)
    return to_answer(KEY_MISSING, options)
