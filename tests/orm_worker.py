"""A process that pays once under a key, through SQLAlchemy on a file of SQLite.

    python orm_worker.py '{"path": "/tmp/shop.db", "driver": "aiosqlite", …}'

It says on stdout how far it is, one word a line, and goes on when it is told to by a
line on stdin:

    ready      before it claims the key
    wrote      the effect is written, and not committed (where `hold` is "effect")
    completed  so is the completion (where `hold` is "commit")

and at last, for each of its tasks, what came of it: `executed`, or the name of the
decision. `began` is said whenever a handler runs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass

from orm import PAID, Payment, Shop, file_engine
from semel.claim import AsyncClaim
from semel.core.options import Options
from semel.guard import AsyncGuard
from semel.sqlalchemy import AsyncStore, async_sessionmaker
from semel.sqlalchemy.effect import Effect
from semel.sqlite.blocking import Connection
from semel.store.statement import Rows, Statement


@dataclass(frozen=True)
class Settings:
    """What the process is told.

    Attributes:
        path: the file, with all tables in it.
        driver: one of `orm.ON_FILE`.
        key: the idempotency key.
        hold: where to wait: `effect`, `commit` or nowhere.
        tasks: how many requests come at once.
        lease: seconds.
    """

    path: str
    driver: str
    key: str
    hold: str = ""
    tasks: int = 1
    lease: float = 10.0


def say(word: str) -> None:
    print(word, flush=True)  # noqa: T201 - read by who started it


def wait() -> None:
    sys.stdin.readline()


def hold_commits() -> None:
    """Wait between the completion and the commit, in the connection's own thread."""
    run: Callable[[Effect, Connection, Statement], Rows] = Effect._run

    def held(effect: Effect, connection: Connection, statement: Statement) -> Rows:
        if statement.name == "commit":
            say("completed")
            wait()
        return run(effect, connection, statement)

    Effect._run = held  # type: ignore[method-assign,assignment] # for this process


async def pay(shop: Shop, settings: Settings) -> str:
    claim = await shop.acquire(settings.key)
    if not isinstance(claim, AsyncClaim):
        return type(claim).__name__
    say("began")
    async with shop.session() as session:
        session.add(Payment(what=settings.key))
        await session.flush()
        if settings.hold == "effect":
            say("wrote")
            await asyncio.to_thread(wait)
        await session.commit()
    await claim.complete(PAID)
    return "executed"


async def main(settings: Settings) -> None:
    if settings.hold == "commit":
        hold_commits()
    engine = file_engine(settings.path, settings.driver)
    store = AsyncStore(engine, owned=True)
    async with AsyncGuard(store, Options(lease=settings.lease)) as guard:
        shop = Shop(engine, async_sessionmaker(engine), guard, settings.path)
        say("ready")
        await asyncio.to_thread(wait)
        for outcome in await asyncio.gather(
            *(pay(shop, settings) for _ in range(settings.tasks)), return_exceptions=True
        ):
            say(str(outcome))


if __name__ == "__main__":
    asyncio.run(main(Settings(**json.loads(sys.argv[1]))))
