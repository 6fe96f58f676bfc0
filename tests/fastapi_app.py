"""FastAPI services for tests: callers who may be revoked, and routes that each test brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from semel.errors import StoreUnavailableError
from semel.fastapi import route_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from asgi_shop import Shop
    from semel.core.identity import Shared
    from semel.guard import AsyncGuard

FIVE = b'{"amount": 5}'
DOWN = StoreUnavailableError("the database is gone")

bearer = HTTPBearer()


class Payment(BaseModel):
    """What is to be paid."""

    amount: int


class SoldOutError(Exception):
    """Something of the application's own."""


class Callers:
    """Who may call; `app.dependency_overrides` is not needed to revoke somebody."""

    def __init__(self, *names: str) -> None:
        self.names = set(names or ("alice", "bob"))

    async def of(
        self, credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]
    ) -> str:
        """Be the dependency that authenticates."""
        if credentials.credentials not in self.names:
            raise HTTPException(401, "who are you?", {"WWW-Authenticate": "Bearer"})
        return credentials.credentials


def guarded_router(
    guard: AsyncGuard[Any], scope: Callable[..., Any] | Shared | None = None, **parts: Any
) -> APIRouter:
    """Return a router whose routes are guarded; callers are alice and bob."""
    guarding = route_class(guard, scope=Callers().of if scope is None else scope)
    return APIRouter(route_class=guarding, **parts)


def service(router: APIRouter, prefix: str = "", **parts: Any) -> FastAPI:
    """Return an application with one router."""
    app = FastAPI(**parts)
    app.include_router(router, prefix=prefix)
    return app


def one_route(shop: Shop, endpoint: Any, **settings: Any) -> FastAPI:
    """Return an application whose only operation is guarded."""
    api = guarded_router(shop.guard)
    api.post("/payments", **settings)(endpoint)
    return service(api)
