"""What a user's type checker makes of the public names; checked, never run."""

from __future__ import annotations

from typing import Any, assert_type

import psycopg
from fastapi import APIRouter
from fastapi.routing import APIRoute
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

import semel
import semel.asyncpg
import semel.fastapi
import semel.memory
import semel.psycopg
import semel.sqlalchemy
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
    asyncpg = semel.AsyncGuard(semel.asyncpg.AsyncStore.connect(url))
    assert_type(asyncpg.current().token, int)
    engine = create_async_engine(url)
    sqlalchemy = semel.AsyncGuard(semel.sqlalchemy.AsyncStore(engine))
    assert_type(sqlalchemy.current().tx, AsyncConnection)
    memory = semel.AsyncGuard(semel.memory.AsyncStore())
    assert_type(memory.with_options(retention=60.0).current().tx, semel.memory.MemoryTx)
    assert_type(semel.current(), semel.AsyncClaim[Any] | None)


class Own(AsyncSession):
    """A session class of the application's own."""


def sessions(engine: AsyncEngine) -> None:
    plain = semel.sqlalchemy.async_sessionmaker(engine, expire_on_commit=False)
    assert_type(plain, async_sessionmaker[AsyncSession])
    own = semel.sqlalchemy.async_sessionmaker(engine, class_=Own)
    assert_type(own, async_sessionmaker[Own])


async def user(name: str) -> str:
    return name


def routes(guard: semel.AsyncGuard[Any]) -> None:
    assert_type(semel.fastapi.route_class(guard, scope=user), type[APIRoute])
    APIRouter(route_class=semel.fastapi.route_class(guard, scope=semel.SHARED))


@semel.options(required=False, retention=60.0)
def decorated(amount: int) -> str:
    return str(amount)


assert_type(decorated(1), str)


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
