"""Starlette on asyncpg: one INSERT in one transaction, bare and guarded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import semel
import semel.asyncpg
from bench.apps.common import POOL, database, remembered, tenant_of
from semel.asgi import IdempotencyMiddleware

if TYPE_CHECKING:
    Pool: TypeAlias = "asyncpg.Pool[Any]"

INSERT = "INSERT INTO payment (tenant, amount) VALUES ($1, $2)"
SELECT = "SELECT body FROM stored WHERE key = $1"


async def make_pool() -> Pool:
    """Make the pool that handlers and guard share; it needs the event loop."""
    pool: Pool = await asyncpg.create_pool(database(), min_size=POOL, max_size=POOL)
    return pool


store = semel.asyncpg.AsyncStore(make_pool)
guard = semel.AsyncGuard(store, semel.Options(remembered=remembered()))


async def pay_bare(request: Request) -> Response:
    """Pay, in a transaction of the handler's own."""
    amount = (await request.json())["amount"]
    async with store.pool.acquire() as connection, connection.transaction():
        await connection.execute(INSERT, tenant_of(request), amount)
    return JSONResponse({"paid": amount}, 201)


async def pay_autocommit(request: Request) -> Response:
    """Pay, without a transaction round the one statement."""
    amount = (await request.json())["amount"]
    async with store.pool.acquire() as connection:
        await connection.execute(INSERT, tenant_of(request), amount)
    return JSONResponse({"paid": amount}, 201)


async def pay_guarded(request: Request) -> Response:
    """Pay, in the claim's transaction."""
    amount = (await request.json())["amount"]
    await guard.current().tx.execute(INSERT, tenant_of(request), amount)
    return JSONResponse({"paid": amount}, 201)


async def read_bare(request: Request) -> Response:
    """Answer with one row, read by its primary key."""
    tenant_of(request)
    async with store.pool.acquire() as connection:
        body = await connection.fetchval(SELECT, request.headers["idempotency-key"])
    return Response(body, 201, media_type="application/json")


@asynccontextmanager
async def opened(_: Starlette) -> AsyncIterator[None]:
    """Open the pool."""
    async with guard:
        yield


bare = Starlette(
    routes=[
        Route("/payments", pay_bare, methods=["POST"]),
        Route("/autocommit", pay_autocommit, methods=["POST"]),
        Route("/stored", read_bare, methods=["POST"]),
    ],
    lifespan=opened,
)
guarded = Starlette(
    routes=[Route("/payments", pay_guarded, methods=["POST"])],
    middleware=[Middleware(IdempotencyMiddleware, guard, scope=tenant_of)],
    lifespan=opened,
)
