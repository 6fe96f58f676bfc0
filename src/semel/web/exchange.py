r"""One guarded request, from the claim to the last byte: begin, run, settle.

The shell makes an exchange and runs the application inside it. `begin` claims
the key: early, by a middleware that knows the caller, or late, by a route whose
framework authenticates first. Until then messages pass; from then on the answer
is held back, settled with its claim, and only then sent (rule O4). However the
application leaves, the claim is settled (rule O6).

    PASSING --begin--> HELD --end of the answer--> SETTLING --> SETTLED (messages pass)
                         |                            \--commit failed--> WITHDRAWN
                         \--client left in the middle--> WITHDRAWN

In WITHDRAWN the answer that the application gives, or was about to give, will
never be sent: whatever it does next raises, so that no work after the response
is done for an effect that does not exist.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from semel.claim import AsyncClaim
from semel.core.fingerprint import RequestImage
from semel.core.problem import BODY_TOO_LARGE, SCOPE_MISSING, STORE_UNAVAILABLE
from semel.errors import (
    BodyTooLargeError,
    CommitFailedError,
    RecipeUnknownError,
    ScopeMissingError,
    StoreError,
    UsageError,
)
from semel.events import Event, emit
from semel.guard import current, restore
from semel.shielding import shielded
from semel.web.held import HeldAnswer
from semel.web.notices import Notices
from semel.web.problems import from_outcome, to_answer

if TYPE_CHECKING:
    from semel.core.identity import Scope
    from semel.core.model import Answer
    from semel.events import EventName
    from semel.guard import AsyncGuard
    from semel.web.asgi_types import App, AsgiScope, Message, Send
    from semel.web.body import RequestBody
    from semel.web.request import Request

logger = logging.getLogger("semel")

# Ways round `send` that a held answer can not take.
_SHORTCUTS: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend"})
_TRAILERS: Final = "http.response.trailers"
_OWN_ENTRIES: Final = frozenset({"extensions", "semel"})


class WithdrawnError(BaseException):
    """Unwinds an application whose answer will not be sent.

    Not an `Exception`, so that no handler of the application's makes another
    answer of it; no `OSError`, which frameworks take for a client that left.
    """


class Phase(Enum):
    """Where an exchange stands; see the module's drawing."""

    PASSING = auto()
    HELD = auto()
    SETTLING = auto()
    SETTLED = auto()
    WITHDRAWN = auto()


class Exchange:
    """A guarded request and its answer.

    Attributes:
        request: what is known of the request.
        claim: the claim that `begin` got, if it got one.
        guard: guards this route.
        settled: set once the claim is settled with the application's answer.
    """

    def __init__(
        self,
        guard: AsyncGuard[Any],
        request: Request,
        body: RequestBody,
        send: Send,
        notices: Notices | None = None,
    ) -> None:
        """Prepare; nothing is claimed, read or sent yet.

        Args:
            guard: guards this route.
            request: what its application's functions see.
            body: whoever made it closes it.
            send: the server's.
            notices: what the application was told already.
        """
        self.request = request
        self.claim: AsyncClaim[Any] | None = None
        self.guard = guard
        self.settled = asyncio.Event()
        self._options = guard.options
        self._body = body
        self._server_send = send
        self._notices = notices or Notices()
        self._scope: AsgiScope = {}
        self._outer_claim = current()
        self._phase = Phase.PASSING
        self._held = HeldAnswer()
        self._knows_client_left = False
        self._worked = False
        self._answered = False  # by the application, before any claim
        self._instead: Answer | None = None

    async def begin(self, scope: Scope, key: str) -> Answer | None:
        """Claim the key; from now on the application's answer is held back.

        Args:
            scope: who owns the key, verified.
            key: the key, checked.

        Returns:
            `None` where the handler is to run, else what to answer instead.

        Raises:
            BodyTooLargeError: the body exceeds its limit.
            ClientGoneError: the client left before the body's end.
        """
        request = self.request
        image = RequestImage(
            method=request.method,
            path=request.path,
            query=request.query,
            headers=request.headers.raw,
            body=await request.body(),
        )
        try:
            outcome = await self.guard.acquire(
                scope, key, self.guard.fingerprint(image), route=request.route
            )
        except (StoreError, RecipeUnknownError) as error:
            self.tell("store-unavailable", f"{type(error).__name__}: {error}")
            return to_answer(STORE_UNAVAILABLE, self._options)
        except (ScopeMissingError, UsageError) as error:
            logger.warning("%s: %s", request.route, error)
            return to_answer(SCOPE_MISSING, self._options)
        if not isinstance(outcome, AsyncClaim):
            return from_outcome(outcome, request, self._options)
        self.claim = outcome
        self._phase = Phase.HELD
        return None

    async def run(self, app: App, scope: AsgiScope) -> None:
        """Run the application and leave no claim behind.

        What the application's routers wrote into its scope is handed back to
        outer middleware, which looks for the route there.
        """
        self._scope = inner = {
            **scope,
            "extensions": _without_shortcuts(scope.get("extensions")),
            "semel": self,
        }
        try:
            await app(inner, self.receive, self.send)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if self._phase is not Phase.WITHDRAWN:
                raise
            _report(error, self.request)
            if (task := asyncio.current_task()) and task.cancelling():
                raise asyncio.CancelledError from None
        finally:
            await self._leave()
            restore(self._outer_claim)  # an application called in-process shares the context
            scope.update((name, inner[name]) for name in inner.keys() - _OWN_ENTRIES)
        if self._phase is Phase.HELD:
            # Incomplete: the server is to react to it as it would without us.
            await self._forward(last=False)
        elif self._instead is not None:
            await self.answer(self._instead)

    async def answer(self, answer: Answer) -> None:
        """Send a whole answer of Semel's own; nobody minds if the client left."""
        self._instead = None
        headers = list(answer.headers)
        start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        with suppress(OSError):
            await self._server_send(start)
            await self._server_send({"type": "http.response.body", "body": answer.body or b""})

    async def receive(self) -> Message:
        """Be the application's `receive`.

        Of a client that left in the middle of an answer the application does not
        hear: it would only cut the answer short, and could not be told from one
        that ended. Instead it is unwound here, and its effect rolled back.

        Raises:
            WithdrawnError: the client left before its answer was whole; or the
                body is too large, which is answered with 413.
        """
        try:
            message = await self._body.receive()
        except BodyTooLargeError:
            self.tell("refused", BODY_TOO_LARGE.name)
            refusal = None if self._answered else to_answer(BODY_TOO_LARGE, self._options)
            raise self.withdraw(refusal) from None
        if message["type"] == "http.disconnect":
            if self._phase is Phase.HELD and self._held.started:
                raise self.withdraw()
            self._knows_client_left = True
        return message

    async def send(self, message: Message) -> None:
        """Be the application's `send`.

        Raises:
            WithdrawnError: the answer will not be sent.
        """
        if self._phase is Phase.HELD:
            await self._hold(message)
        elif self._phase is Phase.PASSING:
            self._answered = True
            await self._server_send(message)
        elif self._phase is Phase.SETTLED:
            await self._pass(message)
        elif self._phase is Phase.WITHDRAWN:
            raise WithdrawnError
        else:
            raise RuntimeError("the application sent two messages at once")

    def holds_claim_in(self, store: object) -> bool:
        """Say whether this exchange, or one around it, holds a claim in a store."""
        if self.claim and not self.claim.closed and self.guard.store is store:
            return True
        outer = self.request.scope.get("semel")
        return isinstance(outer, Exchange) and outer.holds_claim_in(store)

    def tell(self, name: EventName, detail: str) -> None:
        """Report something that happened before there was a claim."""
        emit(self.guard.on_event, Event(name, self.request.route, detail=detail))

    def withdraw(self, instead: Answer | None = None) -> WithdrawnError:
        """Have nothing sent that the application answers; raise what is returned.

        Args:
            instead: what to answer once the application is unwound, if anybody is
                there to get it.
        """
        self._phase = Phase.WITHDRAWN
        self._instead = instead
        return WithdrawnError()

    async def _hold(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._held.begin(message)
            if self._knows_client_left:
                await self._refuse_to_be_cut()
            await self._settle_if_endless()
        elif kind == "http.response.body":
            self._held.add(message.get("body", b""))
            if message.get("more_body", False):
                await self._settle_if_endless()
            else:
                await self._finish()
        elif kind in _SHORTCUTS:
            raise UsageError(f"{kind} was not offered: a guarded answer goes through `send`")
        elif kind != _TRAILERS:
            # Interim answers and debugging are no part of the answer.
            await self._server_send(message)

    async def _refuse_to_be_cut(self) -> None:
        """Withdraw an answer that begins although the application knows of nobody to get it.

        A handler may well finish what it does, and its answer is kept for the
        retry. But a stream that its framework is about to cancel would come out
        as a short one, or end without a word while the work after it is done.
        """
        if self._held.may_be_cut:
            raise self.withdraw()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise self.withdraw() from None

    async def _settle_if_endless(self) -> None:
        """Settle without the body what is too long to hold back, and let it stream (O7)."""
        if self._held.is_event_stream or self._held.exceeds(self._options.max_response_bytes):
            await self._settle(with_body=False)
            await self._forward(last=False)

    async def _finish(self) -> None:
        """Settle the whole answer, and only then send it."""
        if not self._held.is_as_declared:
            await self._claimed.release()
            self._phase = Phase.SETTLED
            await self._forward(last=True)
            return
        await self._settle(with_body=not self._held.exceeds(self._options.max_response_bytes))
        try:
            # The client may have left: what is committed is committed, and the
            # work after the response has to be done.
            with suppress(OSError):
                await self._forward(last=True)
        finally:
            await self._work()

    async def _settle(self, *, with_body: bool) -> None:
        keep = self._options.keep_headers
        extra = frozenset(name.encode("latin-1") for name in keep) if keep else frozenset()
        answer = self._held.to_answer(extra, with_body=with_body)
        if self._claimed.closed:  # the handler settled it by its own hand
            self._phase = Phase.SETTLED
            self.settled.set()
            return
        self._phase = Phase.SETTLING
        try:
            await self._claimed.complete(answer)
        except asyncio.CancelledError as cancelled:
            # The claim was settled all the same; see `semel.shielding`.
            if cancelled.__cause__ is None:
                self._phase = Phase.SETTLED
                raise
            self._fail(cancelled.__cause__)
            # A task group that cancels what streams goes on with the work after
            # the response unless something else is raised.
            raise WithdrawnError from None
        except Exception as error:
            await self.answer(self._fail(error))
            raise WithdrawnError from error
        self._phase = Phase.SETTLED
        self.settled.set()
        if answer.status // 100 == 2 and not self._claimed.touched:  # noqa: PLR2004 - a success
            self._notices.untouched(self._scope, self.guard.on_event)

    def _fail(self, error: BaseException) -> Answer:
        """Note that nothing was committed, and what is to be answered instead."""
        self._phase = Phase.WITHDRAWN
        if isinstance(error, CommitFailedError):
            self._instead = from_outcome(error.decision, self.request, self._options)
        else:
            logger.error("%s: the claim could not be settled", self.request.route, exc_info=error)
            self._instead = to_answer(STORE_UNAVAILABLE, self._options)
        return self._instead

    async def _forward(self, *, last: bool) -> None:
        for message in self._held.messages(last=last):
            await self._server_send(message)

    async def _pass(self, message: Message) -> None:
        kind = message["type"]
        if kind == _TRAILERS:
            return
        await self._server_send(message)
        if kind == "http.response.body" and not message.get("more_body", False):
            await self._work()

    async def _work(self) -> None:
        """Do the work after the response, of which nothing is left to be done then."""
        self._worked = True
        await self._claimed.run_after_commit()

    async def _leave(self) -> None:
        """Settle what is not settled, and do what is still to be done (rule O6)."""
        if self.claim is not None:
            await self.claim.release()
        if self._phase is Phase.SETTLED and not self._worked:
            await shielded(self._work())

    @property
    def _claimed(self) -> AsyncClaim[Any]:
        assert self.claim is not None  # noqa: S101 - in every phase but PASSING
        return self.claim


def _without_shortcuts(extensions: Any) -> dict[str, Any]:  # noqa: ANN401 - the server's
    if not extensions:
        return {}
    refused = {*_SHORTCUTS, _TRAILERS}
    return {name: value for name, value in (extensions or {}).items() if name not in refused}


def _report(error: BaseException, request: Request) -> None:
    """Log what the application raised while it was unwound, unless that was all."""
    rest: BaseException | None = error
    if isinstance(error, BaseExceptionGroup):
        _, rest = error.split(WithdrawnError)
    elif isinstance(error, WithdrawnError):
        rest = None
    if rest is not None:
        logger.error("%s: raised after its answer was withdrawn", request.route, exc_info=rest)
