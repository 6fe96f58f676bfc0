"""Starlette without a database: the same answer, bare and behind a guard on the memory store."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import semel
import semel.memory
from bench.apps.common import tenant_of
from semel.asgi import IdempotencyMiddleware
from semel.core.model import Mode

store = semel.memory.AsyncStore()
guard = semel.AsyncGuard(store)
atomic_guard = semel.AsyncGuard(store, semel.Options(mode=Mode.ATOMIC))
effects: list[tuple[str, int]] = []


async def pay_bare(request: Request) -> Response:
    """Pay: the effect is a tuple in a list."""
    amount = (await request.json())["amount"]
    effects.append((tenant_of(request), amount))
    return JSONResponse({"paid": amount}, 201)


async def pay_guarded(request: Request) -> Response:
    """Pay, in the claim's transaction."""
    amount = (await request.json())["amount"]
    await guard.current().tx.append((tenant_of(request), amount))
    return JSONResponse({"paid": amount}, 201)


async def pay_atomic(request: Request) -> Response:
    """Pay, in the claim's transaction."""
    amount = (await request.json())["amount"]
    await atomic_guard.current().tx.append((tenant_of(request), amount))
    return JSONResponse({"paid": amount}, 201)


bare = Starlette(
    routes=[
        Route("/payments", pay_bare, methods=["POST"]),
        Route("/unguarded", pay_bare, methods=["PUT"]),
    ]
)
guarded = Starlette(
    routes=[
        Route("/payments", pay_guarded, methods=["POST"]),
        Route("/unguarded", pay_bare, methods=["PUT"]),
    ],
    middleware=[Middleware(IdempotencyMiddleware, guard, scope=tenant_of)],
)
atomic = Starlette(
    routes=[Route("/payments", pay_atomic, methods=["POST"])],
    middleware=[Middleware(IdempotencyMiddleware, atomic_guard, scope=tenant_of)],
)
