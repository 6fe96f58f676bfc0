"""What handlers do with sessions of SQLAlchemy, and what is left after each answer (W2, O2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from orm import DECLINED, FAILED, ON_FILE, ON_POSTGRES, PAID, Payment, Shop, orm_shop
from semel.core.model import Mode

# What handlers do, and what is left of it after a success.


async def commit_one(shop: Shop) -> None:
    async with shop.session() as session:
        session.add(Payment(what="a"))
        await session.commit()


async def begin_block(shop: Shop) -> None:
    async with shop.session.begin() as session:
        session.add(Payment(what="a"))


async def commit_and_refresh(shop: Shop) -> None:
    async with shop.session() as session:
        payment = Payment(what="a")
        session.add(payment)
        await session.commit()
        await session.refresh(payment)
        assert payment.what == "a"


async def commit_twice(shop: Shop) -> None:
    async with shop.session() as session:
        for what in ("a", "b"):
            session.add(Payment(what=what))
            await session.commit()


async def roll_back_the_second(shop: Shop) -> None:
    async with shop.session() as session:
        session.add(Payment(what="a"))
        await session.commit()
        session.add(Payment(what="never"))
        await session.flush()
        await session.rollback()


async def roll_back_the_first(shop: Shop) -> None:
    async with shop.session() as session:
        session.add(Payment(what="never"))
        await session.flush()
        await session.rollback()
        session.add(Payment(what="a"))
        await session.commit()


async def close_without_commit(shop: Shop) -> None:
    async with shop.session() as session:
        session.add(Payment(what="never"))
        await session.flush()
    async with shop.session() as session:
        session.add(Payment(what="a"))
        await session.commit()


async def write_many(shop: Shop) -> None:
    async with shop.session() as session:
        session.add_all([Payment(what="a"), Payment(what="b")])
        await session.commit()
        await session.execute(insert(Payment), [{"what": "c"}, {"what": "d"}])
        await session.commit()


async def stream(shop: Shop) -> None:
    async with shop.session() as session:
        session.add_all([Payment(what="a"), Payment(what="b")])
        rows = await session.stream(select(Payment.what).order_by(Payment.id))
        assert [what async for (what,) in rows] == ["a", "b"]
        await session.commit()


async def nested(shop: Shop) -> None:
    async with shop.session() as session:
        session.add(Payment(what="a"))
        await session.flush()
        with pytest.raises(IntegrityError):
            async with session.begin_nested():
                await session.execute(text("INSERT INTO payment (what) VALUES (NULL)"))
        async with session.begin_nested():
            session.add(Payment(what="b"))
        await session.commit()


async def recover_from_an_error(shop: Shop) -> None:
    async with shop.session() as session:
        with pytest.raises(DBAPIError):
            await session.execute(text("SELECT nonsense"))
        await session.rollback()
        session.add(Payment(what="a"))
        await session.commit()


async def two_sessions(shop: Shop) -> None:
    async with shop.session() as one, shop.session() as other:
        one.add(Payment(what="a"))
        await one.flush()
        other.add(Payment(what="b"))
        await other.commit()
        await one.commit()


async def two_sessions_one_rolls_back(shop: Shop) -> None:
    async with shop.session() as one, shop.session() as other:
        one.add(Payment(what="a"))
        await one.flush()
        other.add(Payment(what="never"))
        await other.flush()
        await other.rollback()
        await one.commit()


async def raw_and_session(shop: Shop) -> None:
    connection = shop.guard.current().tx
    await connection.execute(text("INSERT INTO payment (what) VALUES ('a')"))
    async with shop.session() as session:
        session.add(Payment(what="never"))
        await session.flush()
        await session.rollback()


HANDLERS: list[tuple[Callable[[Shop], Awaitable[None]], list[str]]] = [
    (commit_one, ["a"]),
    (begin_block, ["a"]),
    (commit_and_refresh, ["a"]),
    (commit_twice, ["a", "b"]),
    (roll_back_the_second, ["a"]),
    (roll_back_the_first, ["a"]),
    (close_without_commit, ["a"]),
    (write_many, ["a", "b", "c", "d"]),
    (stream, ["a", "b"]),
    (nested, ["a", "b"]),
    (recover_from_an_error, ["a"]),
    (two_sessions, ["a", "b"]),
    (two_sessions_one_rolls_back, ["a"]),
    (raw_and_session, ["a"]),
]


# Where a handler runs, and in which mode.
PLACES = [
    *((driver, mode) for driver in ON_POSTGRES for mode in (Mode.ATOMIC, Mode.JOINED)),
    *((driver, Mode.JOINED) for driver in ON_FILE),
]


@pytest.fixture(params=PLACES, ids="-".join)
def opened(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[], AbstractAsyncContextManager[Shop]]:
    """Open a shop whose engine has one connection."""
    driver, mode = request.param
    url = str(tmp_path / "shop.db")
    if driver in ON_POSTGRES:
        url = request.getfixturevalue("pg_database")
    return lambda: orm_shop(url, driver, size=1, mode=mode)


@pytest.mark.rule("W2", "O2")
@pytest.mark.parametrize(
    ("handler", "left"), HANDLERS, ids=[handler.__name__ for handler, _ in HANDLERS]
)
async def test_a_handler_keeps_its_habits(
    opened: Callable[[], AbstractAsyncContextManager[Shop]],
    handler: Callable[[Shop], Awaitable[None]],
    left: list[str],
) -> None:
    async with opened() as shop:
        as_found = await settings(shop)
        for answer, effects in ((FAILED, []), (DECLINED, []), (PAID, left)):
            key = str(answer.status)
            claim = await shop.claim(key)
            await handler(shop)
            assert await shop.effects() == []  # nothing is visible before the settlement
            assert claim.touched
            await claim.complete(answer)
            assert await shop.effects() == effects
            assert await shop.replays(key) is (answer is not FAILED)
        # All of it on the one connection there is, which is given back as it was.
        assert await settings(shop) == as_found


async def settings(shop: Shop) -> list[object]:
    """Say how a connection out of the pool begins transactions."""
    async with shop.engine.connect() as connection:
        assert await connection.scalar(text("SELECT 1")) == 1
        raw = (await connection.get_raw_connection()).dbapi_connection
        found: list[object] = [
            getattr(raw, name, None) for name in ("autocommit", "isolation_level")
        ]
        if shop.on_file:
            found.append(await connection.scalar(text("PRAGMA busy_timeout")))
        return found
