"""What a user's type checker makes of the public names; checked, never run."""

from __future__ import annotations

from typing import Any, assert_type

import psycopg

import semel
import semel.memory
import semel.psycopg
import semel.sqlite
from semel.asgi import IdempotencyMiddleware
from semel.core.model import InDoubt, InFlight, Mismatch, NotStored, Replay, StaleKey
from semel.web.request import Request


def tenant(request: Request) -> str:
    return request.headers["x-tenant"]


async def transactions(url: str) -> None:
    postgres = semel.AsyncGuard(semel.psycopg.AsyncStore.connect(url))
    assert_type(postgres.current().tx, psycopg.AsyncConnection[Any])
    sqlite = semel.AsyncGuard(semel.sqlite.AsyncStore("shop.db"))
    assert_type(sqlite.current().tx, semel.sqlite.AsyncConnection)
    memory = semel.AsyncGuard(semel.memory.AsyncStore())
    assert_type(memory.with_options(retention=60.0).current().tx, semel.memory.MemoryTx)
    assert_type(semel.current(), semel.AsyncClaim[Any] | None)


def middleware(app: Any, guard: semel.AsyncGuard[Any]) -> None:
    IdempotencyMiddleware(app, guard, scope=tenant, authorize=lambda request: bool(request.path))
    IdempotencyMiddleware(app, guard, scope=semel.SHARED)


def every_decision(
    decision: Replay | InFlight | Mismatch | StaleKey | InDoubt | NotStored,
) -> int:
    match decision:
        case Replay(answer):
            return answer.status
        case InFlight() | InDoubt() | NotStored():
            return 409
        case Mismatch():
            return 422
        case StaleKey():
            return 412
