"""FastAPI on SQLAlchemy's ORM: session and caller are dependencies, bare and guarded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

import semel
import semel.fastapi
import semel.sqlalchemy
from bench.apps.common import TENANTS, remembered
from bench.apps.models import Payment, make_engine

engine = make_engine()
BareSession = async_sessionmaker(engine)
Session: async_sessionmaker[AsyncSession] = semel.sqlalchemy.async_sessionmaker(engine)
guard = semel.AsyncGuard(
    semel.sqlalchemy.AsyncStore(engine), semel.Options(remembered=remembered())
)


class Wish(BaseModel):
    """What the client asks for."""

    amount: int


class Receipt(BaseModel):
    """What it is told."""

    paid: int


async def tenant(authorization: Annotated[str, Header()]) -> str:
    """Return who calls."""
    return TENANTS[authorization]


async def bare_session() -> AsyncIterator[AsyncSession]:
    """Open a session."""
    async with BareSession() as session:
        yield session


async def joining_session() -> AsyncIterator[AsyncSession]:
    """Open a session that joins the claim."""
    async with Session() as session:
        yield session


Caller = Annotated[str, Depends(tenant)]


async def pay_bare(
    wish: Wish, caller: Caller, session: Annotated[AsyncSession, Depends(bare_session)]
) -> Receipt:
    """Pay, in a transaction of the session's own."""
    session.add(Payment(tenant=caller, amount=wish.amount))
    await session.commit()
    return Receipt(paid=wish.amount)


async def pay_guarded(
    wish: Wish, caller: Caller, session: Annotated[AsyncSession, Depends(joining_session)]
) -> Receipt:
    """Pay, in the claim's transaction, which the session joins."""
    session.add(Payment(tenant=caller, amount=wish.amount))
    await session.commit()
    return Receipt(paid=wish.amount)


@asynccontextmanager
async def opened(_: FastAPI) -> AsyncIterator[None]:
    """Close the engine at the end."""
    yield
    await engine.dispose()


bare = FastAPI(lifespan=opened)
bare.post("/payments", status_code=201)(pay_bare)

api = APIRouter(route_class=semel.fastapi.route_class(guard, scope=tenant))
api.post("/payments", status_code=201)(pay_guarded)
guarded = FastAPI(lifespan=opened)
guarded.include_router(api)
