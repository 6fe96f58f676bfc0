"""A guarded request on its way through its route: known key, later a known owner."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.background import BackgroundTasks
from starlette.responses import Response

from semel.core.answer import keep_headers
from semel.core.model import Answer
from semel.web import access, admission
from semel.web.body import ClientGoneError

if TYPE_CHECKING:
    from semel.web.admission import Outcome
    from semel.web.exchange import Exchange

# Where a turn stands in the ASGI scope: a context variable would not come back
# from every middleware, nor from every dependency.
ENTRY: Final = "semel.turn"


class Turn:
    """What the shell of a route knows, and what its dependencies find out.

    Attributes:
        exchange: the request.
        plan: the route's own; a request that is handed on to another route in
            process takes another turn there.
        owner: what the scope dependency returned.
        extra: the response whose headers the dependencies have set.
        admitted: set once a streaming endpoint may run.
        started: set once its first piece is on its way, or it has ended before.
        failure: what it raised before its first piece.
        is_settled_early: it streams events, in a task of its own.
    """

    def __init__(self, exchange: Exchange, plan: object, key: str | None) -> None:
        """Begin at the route's door.

        Args:
            exchange: the request.
            plan: identifies the route.
            key: the key; `None` where it is in the body.
        """
        self.exchange = exchange
        self.plan = plan
        self.owner: Any = None
        self.extra: Response | None = None
        self.admitted = asyncio.Event()
        self.started = asyncio.Event()
        self.failure: Exception | None = None
        self.is_settled_early = False
        self._key = key

    async def begin(self) -> Response | None:
        """Claim the key, now that every dependency is solved and the request is valid.

        Returns:
            `None` where the endpoint is to run, else what is answered instead.

        Raises:
            WithdrawnError: the client is gone.
        """
        try:
            outcome = await admission.answered(self.exchange, self._claim)
        except ClientGoneError:
            raise self.exchange.withdraw() from None
        return self._response(outcome) if isinstance(outcome, Answer) else None

    async def admit(self, *, events: bool) -> Response | None:
        """Claim the key for a streaming endpoint, and let it run; see `begin`.

        Args:
            events: it streams events, and FastAPI has started it in a task.

        Raises:
            Exception: what it raised before its first event.
        """
        answer = await self.begin()
        if answer is not None:
            return answer
        self.is_settled_early = events
        self.admitted.set()
        if events:
            await self.started.wait()
            if self.failure is not None:
                raise self.failure
        return None

    async def _claim(self, exchange: Exchange) -> Outcome:
        owner = access.owner_of(self.owner, exchange.request, exchange.guard.options)
        if isinstance(owner, Answer):
            exchange.tell("refused", str(owner.status))
            return owner
        return await admission.claim(exchange, owner, self._key)

    def _response(self, answer: Answer) -> Response:
        """Return exactly this answer, and what the dependencies say about this request.

        What they set for the moment, such as a cookie or a rate limit, is never in a
        replay and belongs to every answer; what a replay has is the first answer's.
        """
        options = self.exchange.guard.options
        fresh = tuple(self.extra.raw_headers) if self.extra is not None else ()
        kept = keep_headers(fresh, frozenset(name.encode() for name in options.keep_headers))
        names = {name for name, _ in (*answer.headers, *kept)}
        response = Response(answer.body or b"", answer.status)
        response.raw_headers = [
            *answer.headers,
            *(pair for pair in fresh if pair[0] not in names),
        ]
        # Whatever the dependencies want done after the response belongs to a handler
        # that ran; FastAPI adds it where there is none.
        response.background = BackgroundTasks()
        return response
