"""Starlette on asyncpg behind idemkit's middleware: the same effect, in its own transaction.

It runs in an environment of its own, without Semel. idemkit's tables are made by its
own command, its options are its defaults, its pool is its own and as large as the load
can use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from idemkit import HttpConfig, IdempotencyMiddleware, PostgresBackend
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bench.apps.common import POOL, database, tenant_of

INSERT = "INSERT INTO payment (tenant, amount) VALUES ($1, $2)"


async def pay_guarded(request: Request) -> Response:
    """Pay, in a transaction of the handler's own: idemkit has none to join."""
    amount = (await request.json())["amount"]
    async with request.app.state.pool.acquire() as connection, connection.transaction():
        await connection.execute(INSERT, tenant_of(request), amount)
    return JSONResponse({"paid": amount}, 201)


backend = PostgresBackend.from_url(database(), min_size=POOL, max_size=POOL)


@asynccontextmanager
async def opened(app: Starlette) -> AsyncIterator[None]:
    """Open the handlers' pool, and close both."""
    async with backend, asyncpg.create_pool(database(), min_size=POOL, max_size=POOL) as pool:
        app.state.pool = pool
        yield


guarded = Starlette(
    routes=[Route("/payments", pay_guarded, methods=["POST"])],
    middleware=[
        Middleware(
            IdempotencyMiddleware,
            backend=backend,
            config=HttpConfig(scope=tenant_of),
            manage_backend=False,  # its own way is cut off by the end of the event loop
        )
    ],
    lifespan=opened,
)
