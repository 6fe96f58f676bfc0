"""Starlette on SQLAlchemy's ORM: one session, one object, one commit, bare and guarded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import semel
import semel.sqlalchemy
from bench.apps.common import remembered, tenant_of
from bench.apps.models import Payment, Stored, make_engine
from semel.asgi import IdempotencyMiddleware

engine = make_engine()
BareSession = async_sessionmaker(engine)
Session: async_sessionmaker[AsyncSession] = semel.sqlalchemy.async_sessionmaker(engine)
guard = semel.AsyncGuard(
    semel.sqlalchemy.AsyncStore(engine), semel.Options(remembered=remembered())
)


async def pay_bare(request: Request) -> Response:
    """Pay, in a transaction of the session's own."""
    amount = (await request.json())["amount"]
    async with BareSession() as session:
        session.add(Payment(tenant=tenant_of(request), amount=amount))
        await session.commit()
    return JSONResponse({"paid": amount}, 201)


async def pay_guarded(request: Request) -> Response:
    """Pay, in the claim's transaction, which the session joins."""
    amount = (await request.json())["amount"]
    async with Session() as session:
        session.add(Payment(tenant=tenant_of(request), amount=amount))
        await session.commit()
    return JSONResponse({"paid": amount}, 201)


async def read_bare(request: Request) -> Response:
    """Answer with one object, read by its primary key."""
    tenant_of(request)
    async with BareSession() as session:
        found = await session.get_one(Stored, request.headers["idempotency-key"])
    return Response(found.body, 201, media_type="application/json")


@asynccontextmanager
async def opened(_: Starlette) -> AsyncIterator[None]:
    """Close the engine at the end."""
    yield
    await engine.dispose()


bare = Starlette(
    routes=[
        Route("/payments", pay_bare, methods=["POST"]),
        Route("/stored", read_bare, methods=["POST"]),
    ],
    lifespan=opened,
)
guarded = Starlette(
    routes=[Route("/payments", pay_guarded, methods=["POST"])],
    middleware=[Middleware(IdempotencyMiddleware, guard, scope=tenant_of)],
    lifespan=opened,
)
