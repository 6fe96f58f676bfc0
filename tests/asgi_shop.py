"""A shop in memory whose handlers each test brings along.

`shop.pay()` is what a handler does: it counts that it ran, and stages an effect
in its claim's transaction. `shop.trouble` names statements that fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from semel import memory
from semel.asgi import IdempotencyMiddleware
from semel.core.model import Mode, Status
from semel.core.options import Options
from semel.errors import AccessRefusedError
from semel.guard import AsyncGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semel.events import Event
    from semel.memory import Transaction
    from semel.store.statement import Rows, Statement
    from semel.web.asgi_types import App
    from semel.web.request import Request

ALICE = {"authorization": "Bearer alice"}


def bearer(request: Request) -> str:
    """Name the caller; a real service would verify the token."""
    kind, _, token = (request.headers.get("authorization") or "").partition(" ")
    if kind != "Bearer" or token not in {"alice", "bob"}:
        raise AccessRefusedError(
            401, "send a bearer token", (("WWW-Authenticate", 'Bearer realm="shop"'),)
        )
    return token


class Troubled(memory.Statements):
    """The statements, some of which fail when asked to."""

    trouble: ClassVar[dict[str, Exception]]

    def __call__(self, tx: Transaction, statement: Statement) -> Rows:
        if statement.name in self.trouble:
            raise self.trouble[statement.name]
        return super().__call__(tx, statement)


class Shop:
    """A guard on a store of its own, and what happened.

    Attributes:
        runs: how many handlers ran.
        events: the events, in order.
        trouble: errors by the name of the statement that is to raise them.
    """

    def __init__(self, mode: Mode = Mode.JOINED, **options: Any) -> None:
        self.trouble: dict[str, Exception] = {}
        statements = type("Statements", (Troubled,), {"trouble": self.trouble})
        store = type("AsyncStore", (memory.AsyncStore,), {"statements": statements})
        self.store: memory.AsyncStore = store()
        self.events: list[Event] = []
        self.guard = AsyncGuard(
            self.store, Options(mode=mode, **options), on_event=self.events.append
        )
        self.runs = 0

    async def pay(self) -> None:
        """Do what a handler does."""
        self.runs += 1
        await self.guard.current().tx.append("payment")

    @property
    def effects(self) -> int:
        """How many effects are committed."""
        return len(self.store.effects)

    @property
    def told(self) -> list[str]:
        """The names of the events."""
        return [event.name for event in self.events]

    @property
    def claims(self) -> list[Status]:
        """The committed claims that are not given back."""
        rows = self.store.database.rows.values()
        return [row.status for row in rows if row.status is not Status.RELEASED]

    @property
    def untouched(self) -> bool:
        """Whether there is no effect, no claim and no open transaction."""
        return not (self.effects or self.claims or self.store.database._open)

    def guarded(self, app: App, **parts: Any) -> IdempotencyMiddleware:
        """Put the middleware round an application."""
        return IdempotencyMiddleware(app, self.guard, **{"scope": bearer, **parts})

    def service(
        self,
        handler: Callable[..., Any],
        *,
        outside: Sequence[Middleware] = (),
        inside: Sequence[Middleware] = (),
        **parts: Any,
    ) -> Starlette:
        """Make a Starlette service that is guarded by its middleware."""
        guarding = Middleware(IdempotencyMiddleware, self.guard, scope=bearer)
        return Starlette(
            routes=[Route("/payments", handler, methods=["POST", "GET", "PUT", "PATCH"])],
            middleware=[*outside, guarding, *inside],
            **parts,
        )
