"""One payment handler on each driver of PostgreSQL, behind Semel's middleware.

In a test's own process:

    async with opened(Settings("asyncpg", url, log)) as app: …

As a process of its own, which writes its port to stdout:

    python driver_app.py '{"driver": "asyncpg", "url": "postgresql://…", "log": "…"}'

`POST /atomic/pay` and `POST /joined/pay` write one row. What happens is appended
to the log, one line each, so that a test can tell from outside where a fault
struck: `began KEY`, `wrote KEY`, `held KEY`, `settled KEY` (after the commit, by
Semel), `worked KEY` (after the response, by the framework).
The header `X-Fault` holds words that make the handler misbehave:

    late      the row's own constraint is checked at COMMIT, and waits for rivals there
    twice     the same, and violated
    swallow   violates a constraint, and takes no notice
    close     leaves its session, where it has one, before it answers
    commit    sends COMMIT as text; `begin` and `fail`: and BEGIN, and an error, after that
    hold      waits when its work is done, until `PUT /gates/KEY`
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg
import uvicorn
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import MetaData, UniqueConstraint, make_url, text
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

import semel.asyncpg
import semel.psycopg
import semel.sqlalchemy
from semel import SHARED
from semel.asgi import IdempotencyMiddleware
from semel.claim import AsyncClaim
from semel.core.model import Mode
from semel.core.options import Options
from semel.guard import AsyncGuard, current
from semel.store.protocol import AsyncStore

T = TypeVar("T")
SECONDS = 20.0
MODES = (Mode.ATOMIC, Mode.JOINED)


@dataclass(frozen=True)
class Settings:
    """What the application is told.

    Attributes:
        driver: one of `DRIVERS`.
        url: the database.
        log: the file that events are appended to.
        size: connections in the pool, at most.
        patience: seconds for which the pool keeps somebody waiting for one.
        lease: seconds, of joined claims.
    """

    driver: str
    url: str
    log: str
    size: int = 5
    patience: float = 20.0
    lease: float = 10.0


class Base(DeclarativeBase):
    metadata = MetaData()


class Effect(Base):
    """One effect; nothing but a claim keeps a key from having two."""

    __tablename__ = "effect"
    __table_args__ = (UniqueConstraint("late", deferrable=True, initially="DEFERRED"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    what: Mapped[str]
    once: Mapped[str | None] = mapped_column(unique=True)
    late: Mapped[str | None]


TEXTS = {"commit": "COMMIT", "begin": "BEGIN", "fail": "SELECT nonsense"}
INSERT = "INSERT INTO effect (what, once, late) VALUES"


class Hands(Protocol):
    """What a handler does its work with, in the way that is usual for its driver."""

    async def write(self, what: str, *, once: str | None, late: str | None) -> None: ...
    async def say(self, sql: str) -> None: ...
    async def finish(self) -> None: ...


@dataclass(frozen=True)
class Driver:
    """A driver of the database.

    Attributes:
        store: what the guard works with.
        lent: says how many connections the pool has lent.
        hands: what one request works with.
    """

    store: AsyncStore[Any]
    lent: Callable[[], int]
    hands: Callable[[], AbstractAsyncContextManager[Hands]]


class PsycopgHands:
    def __init__(self, tx: AsyncConnection[Any]) -> None:
        self._tx = tx

    async def write(self, what: str, *, once: str | None, late: str | None) -> None:
        await self._tx.execute(f"{INSERT} (%s, %s, %s)", [what, once, late])

    async def say(self, sql: str) -> None:
        await self._tx.execute(sql.encode())

    async def finish(self) -> None:
        """Leave the commit to the guard."""


class AsyncpgHands:
    def __init__(self, tx: Any) -> None:
        self._tx = tx

    async def write(self, what: str, *, once: str | None, late: str | None) -> None:
        await self._tx.execute(f"{INSERT} ($1, $2, $3)", what, once, late)

    async def say(self, sql: str) -> None:
        await self._tx.execute(sql)

    async def finish(self) -> None:
        """Leave the commit to the guard."""


class SessionHands:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def write(self, what: str, *, once: str | None, late: str | None) -> None:
        self._session.add(Effect(what=what, once=once, late=late))
        await self._session.flush()

    async def say(self, sql: str) -> None:
        await self._session.execute(text(sql))

    async def finish(self) -> None:
        await self._session.commit()


@asynccontextmanager
async def on_psycopg(settings: Settings) -> AsyncIterator[Driver]:
    pool = AsyncConnectionPool[AsyncConnection[Any]](
        settings.url,
        open=False,
        min_size=1,
        max_size=settings.size,
        timeout=settings.patience,
    )

    def lent() -> int:
        stats = pool.get_stats()
        return stats["pool_size"] - stats["pool_available"]

    @asynccontextmanager
    async def hands() -> AsyncIterator[Hands]:
        yield PsycopgHands(claim_at_hand().tx)

    async with pool:
        yield Driver(semel.psycopg.AsyncStore(pool), lent, hands)


@asynccontextmanager
async def on_asyncpg(settings: Settings) -> AsyncIterator[Driver]:
    @asynccontextmanager
    async def hands() -> AsyncIterator[Hands]:
        yield AsyncpgHands(claim_at_hand().tx)

    pool = await asyncpg.create_pool(settings.url, min_size=1, max_size=settings.size)
    store = semel.asyncpg.AsyncStore(pool, acquire_timeout=settings.patience)
    try:
        yield Driver(store, lambda: pool.get_size() - pool.get_idle_size(), hands)
    finally:
        async with asyncio.timeout(SECONDS):  # or it waits for a lost connection for ever
            await pool.close()


def on_sqlalchemy(
    driver: str,
) -> Callable[[Settings], AbstractAsyncContextManager[Driver]]:
    @asynccontextmanager
    async def opened(settings: Settings) -> AsyncIterator[Driver]:
        engine = create_engine(settings.url, driver, settings.size, settings.patience)
        sessions: async_sessionmaker[AsyncSession] = semel.sqlalchemy.async_sessionmaker(engine)

        @asynccontextmanager
        async def hands() -> AsyncIterator[Hands]:
            async with sessions() as session:
                yield SessionHands(session)

        try:
            store = semel.sqlalchemy.AsyncStore(engine)
            yield Driver(store, engine.pool.checkedout, hands)  # type: ignore[attr-defined] # of every queue
        finally:
            await engine.dispose()

    return opened


def create_engine(url: str, driver: str, size: int, patience: float) -> AsyncEngine:
    address = make_url(url).set(drivername=f"postgresql+{driver}")
    return create_async_engine(address, pool_size=size, max_overflow=0, pool_timeout=patience)


def claim_at_hand() -> AsyncClaim[Any]:
    claim = current()
    assert claim is not None
    return claim


DRIVERS: dict[str, Callable[[Settings], AbstractAsyncContextManager[Driver]]] = {
    "psycopg": on_psycopg,
    "asyncpg": on_asyncpg,
    "sqlalchemy+psycopg": on_sqlalchemy("psycopg"),
    "sqlalchemy+asyncpg": on_sqlalchemy("asyncpg"),
}


async def prepare(url: str) -> None:
    """Make all tables in a database."""
    engine = create_engine(url, "psycopg", 1, 5)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await semel.sqlalchemy.AsyncStore(engine).migrate()
    await engine.dispose()


class PaymentApp:
    """The application.

    Attributes:
        asgi: what a server calls.
        driver: what it stands on.
        gates: what held handlers wait for, by key.
    """

    def __init__(self, settings: Settings, driver: Driver, guard: AsyncGuard[Any]) -> None:
        self.driver = driver
        self.gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._log = Path(settings.log)
        self.asgi = Starlette(
            routes=[
                *(
                    Mount(
                        f"/{mode}",
                        IdempotencyMiddleware(
                            self._pay, guard.with_options(mode=mode), scope=SHARED
                        ),
                    )
                    for mode in MODES
                ),
                Route("/gates/{key}", self._open_gate, methods=["PUT"]),
            ]
        )

    async def _pay(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        key = request.headers["idempotency-key"]
        self._note("began", key)
        faults = request.headers.get("x-fault", "").split()
        claim_at_hand().after_commit(partial(self._note, "settled", key))
        async with AsyncExitStack() as stack:
            hands = await stack.enter_async_context(self.driver.hands())
            await self._work(hands, key, faults)
            if "close" in faults:
                await stack.aclose()
            response = JSONResponse(
                {"paid": key, "run": secrets.token_hex(8)},
                201,
                background=BackgroundTask(self._after, key),
            )
            await response(scope, receive, send)

    async def _work(self, hands: Hands, key: str, faults: list[str]) -> None:
        late = key if {"late", "twice"} & {*faults} else None
        await hands.write(key, once=None, late=late)
        if "twice" in faults:
            await hands.write(key, once=None, late=late)
        for word, sql in TEXTS.items():
            if word in faults:
                await hands.say(sql)
        if "swallow" in faults:
            for _ in range(2):
                with suppress(Exception):
                    await hands.write(key, once=key, late=None)
        else:
            await hands.finish()
        self._note("wrote", key)
        if "hold" in faults:
            self._note("held", key)
            await self.gates[key].wait()

    async def _after(self, key: str) -> None:
        self._note("worked", key)

    async def _open_gate(self, request: Request) -> Response:
        self.gates[request.path_params["key"]].set()
        return Response()

    def _note(self, event: str, key: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{os.getpid()} {event} {key}\n")


def noted(log: Path, key: str) -> list[str]:
    """Return what the log says about a key, in order and whoever wrote it."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return [event for _, event, about in lines if about == key]


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """Look again and again until there is something, and return that."""
    give_up = time.monotonic() + SECONDS
    while not (seen := await look()):
        assert time.monotonic() < give_up, "it did not happen in time"
        await asyncio.sleep(0.01)
    return seen


async def until_held(log: Path, *keys: str) -> None:
    """Wait until the handlers of all keys wait."""

    async def held() -> bool:
        return all("held" in noted(log, key) for key in keys)

    await until(held)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[PaymentApp]:
    """Connect the application, and close what it has opened."""
    async with DRIVERS[settings.driver](settings) as driver:
        guard = AsyncGuard(driver.store, Options(lease=settings.lease))
        async with guard:
            yield PaymentApp(settings, driver, guard)


async def serve(settings: Settings) -> None:
    """Serve on a free port of this machine until SIGTERM."""
    async with opened(settings) as app:
        with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
            print(listener.getsockname()[1], flush=True)  # noqa: T201 - read by who started it
            config = uvicorn.Config(app.asgi, lifespan="off", ws="none", log_level="warning")
            await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    asyncio.run(serve(Settings(**json.loads(sys.argv[1]))))
