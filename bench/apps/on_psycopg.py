"""Starlette on psycopg 3: one INSERT in one transaction, bare and guarded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import semel
import semel.psycopg
from bench.apps.common import POOL, database, remembered, tenant_of
from semel.asgi import IdempotencyMiddleware

INSERT = "INSERT INTO payment (tenant, amount) VALUES (%s, %s)"
SELECT = "SELECT body FROM stored WHERE key = %s"

pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
    database(), open=False, min_size=POOL, max_size=POOL, kwargs={"autocommit": True}
)
guard = semel.AsyncGuard(semel.psycopg.AsyncStore(pool), semel.Options(remembered=remembered()))


async def pay_bare(request: Request) -> Response:
    """Pay, in a transaction of the handler's own."""
    amount = (await request.json())["amount"]
    async with pool.connection() as connection, connection.transaction():
        await connection.execute(INSERT, (tenant_of(request), amount))
    return JSONResponse({"paid": amount}, 201)


async def pay_autocommit(request: Request) -> Response:
    """Pay, without a transaction round the one statement."""
    amount = (await request.json())["amount"]
    async with pool.connection() as connection:
        await connection.execute(INSERT, (tenant_of(request), amount))
    return JSONResponse({"paid": amount}, 201)


async def pay_guarded(request: Request) -> Response:
    """Pay, in the claim's transaction."""
    amount = (await request.json())["amount"]
    await guard.current().tx.execute(INSERT, (tenant_of(request), amount))
    return JSONResponse({"paid": amount}, 201)


async def read_bare(request: Request) -> Response:
    """Answer with one row, read by its primary key."""
    tenant_of(request)
    async with pool.connection() as connection:
        found = await connection.execute(SELECT, (request.headers["idempotency-key"],))
        (body,) = await found.fetchone() or ("",)
    return Response(body, 201, media_type="application/json")


@asynccontextmanager
async def opened(_: Starlette) -> AsyncIterator[None]:
    """Open the pool."""
    async with pool:
        await pool.wait()
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
