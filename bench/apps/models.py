"""The payment as an ORM class, and the engine under it."""

from __future__ import annotations

import os

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from bench.apps.common import POOL, database


class Base(DeclarativeBase):
    """The tables of the application."""


class Payment(Base):
    """One row of `payment`."""

    __tablename__ = "payment"

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    amount: Mapped[int]


class Stored(Base):
    """One row of `stored`: an answer under a key."""

    __tablename__ = "stored"

    key: Mapped[str] = mapped_column(primary_key=True)
    body: Mapped[str]


def make_engine() -> AsyncEngine:
    """Make the engine, over the driver that the run asks for."""
    scheme = f"postgresql+{os.environ['SEMEL_BENCH_DRIVER']}"
    url = database().replace("postgresql", scheme, 1)
    return create_async_engine(url, pool_size=POOL, max_overflow=0)
