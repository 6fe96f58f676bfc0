"""Sessions of SQLAlchemy keep their habits, and the promise holds (rule W2)."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from orm import DECLINED, FAILED, PAID, Payment, Shop, orm_shop
from semel.claim import AsyncClaim
from semel.core.model import InDoubt, Mode, Replay
from semel.errors import ClaimClosedError, CommitFailedError, UsageError
from semel.guard import restore
from semel.participants import gathering
from semel.sqlalchemy import async_sessionmaker
from servers import fresh_database

pytestmark = pytest.mark.rule("W2")

Claim = AsyncClaim[AsyncConnection]


@pytest.fixture(params=["asyncpg", "psycopg"])
async def shop(request: pytest.FixtureRequest, pg_database: str) -> AsyncIterator[Shop]:
    async with orm_shop(pg_database, request.param) as opened:
        yield opened


@pytest.fixture(params=["asyncpg", "psycopg"])
async def joined_shop(request: pytest.FixtureRequest, pg_database: str) -> AsyncIterator[Shop]:
    async with orm_shop(pg_database, request.param, mode=Mode.JOINED) as opened:
        yield opened


async def replays(shop: Shop, key: str = "k") -> bool:
    restore(None)
    found = await shop.acquire(key)
    if isinstance(found, AsyncClaim):
        await found.release()
    return isinstance(found, Replay)


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
    (nested, ["a", "b"]),
    (recover_from_an_error, ["a"]),
    (two_sessions, ["a", "b"]),
    (two_sessions_one_rolls_back, ["a"]),
    (raw_and_session, ["a"]),
]


@pytest.mark.parametrize(
    ("handler", "left"), HANDLERS, ids=[handler.__name__ for handler, _ in HANDLERS]
)
@pytest.mark.parametrize("mode", [Mode.ATOMIC, Mode.JOINED])
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_handler_keeps_its_habits(
    pg_database: str,
    driver: str,
    mode: Mode,
    handler: Callable[[Shop], Awaitable[None]],
    left: list[str],
) -> None:
    async with orm_shop(pg_database, driver, size=1, mode=mode) as shop:
        for answer, effects in ((FAILED, []), (DECLINED, []), (PAID, left)):
            key = str(answer.status)
            claim = await shop.claim(key)
            await handler(shop)
            assert await shop.effects() == []  # nothing is visible before the settlement
            assert claim.touched
            await claim.complete(answer)
            assert await shop.effects() == effects
            assert await replays(shop, key) is (answer is not FAILED)
        # All of it on the one connection there is, which is given back as it was.
        async with shop.engine.connect() as connection:
            assert not (await connection.get_raw_connection()).dbapi_connection.autocommit  # type: ignore[union-attr]
            assert await connection.scalar(text("SELECT 1")) == 1


@pytest.mark.rule("W2")
async def test_a_session_made_before_the_claim_joins_it(shop: Shop) -> None:
    async with shop.session() as session:
        claim = await shop.claim()
        session.add(Payment(what="a"))
        await session.commit()
        assert await shop.effects() == []
        await claim.complete(PAID)
    assert await shop.effects() == ["a"]


async def test_a_commit_after_yield_comes_too_late_for_nothing(shop: Shop) -> None:
    with gathering():
        session = shop.session()  # a dependency makes it
        claim = await shop.claim()
        payment = Payment(what="a")
        session.add(payment)  # the handler only adds
        await claim.complete(PAID)
        assert await shop.effects() == ["a"]
        assert payment.what == "a"  # not expired: nothing has to be read again
        await session.commit()  # the dependency, after the answer
        await session.close()
    assert await shop.effects() == ["a"]
    assert await replays(shop)


async def test_a_begin_block_round_the_answer(shop: Shop) -> None:
    with gathering():
        async with shop.session() as session, session.begin():
            claim = await shop.claim()
            session.add(Payment(what="a"))
            await claim.complete(PAID)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("W2", "O2")
async def test_a_failed_flush_that_was_swallowed_is_not_a_success(shop: Shop) -> None:
    """SQLAlchemy has rolled back by itself: the database would commit, with nothing in it."""
    claim = await shop.claim()
    session = shop.session()
    session.add(Payment(what="a"))
    session.add(Payment(what=None))
    with pytest.raises(IntegrityError):
        await session.flush()
    with pytest.raises(CommitFailedError):
        await claim.complete(PAID)
    await session.close()
    assert await shop.effects() == []


@pytest.mark.rule("W2", "A2")
async def test_authentication_inside_a_begin_block(shop: Shop) -> None:
    with gathering():
        async with shop.session.begin() as session:
            assert (await session.scalars(select(Payment))).all() == []
            claim = await shop.claim()
            assert shop.engine.pool.checkedout() == 1  # type: ignore[attr-defined]
            session.add(Payment(what="a"))
            await claim.complete(PAID)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("W2", "A2")
async def test_authentication_through_the_same_session(pg_database: str) -> None:
    """What it did before the claim is committed, and its connection is free for the claim."""
    async with orm_shop(pg_database, "asyncpg", size=1) as shop:
        with gathering():
            async with shop.session() as session:
                user = Payment(what="seen")
                session.add(user)
                await session.flush()
                claim = await shop.claim()
                assert await shop.effects() == ["seen"]
                assert user.what == "seen"  # not expired
                session.add(Payment(what="a"))
                await session.commit()
                await claim.complete(DECLINED)
        assert await shop.effects() == ["seen"]


@pytest.mark.rule("W2")
async def test_what_is_pending_and_can_not_be_delivered_fails_the_claim(shop: Shop) -> None:
    async with shop.session() as session:
        with gathering():
            late = shop.session()
            claim = await shop.claim()
        session.add(Payment(what="a", once="x"))
        await session.commit()
        late.add(Payment(what="b", once="x"))
        with pytest.raises(CommitFailedError):
            await claim.complete(PAID)
        await late.close()
    assert await shop.effects() == []
    assert not await replays(shop)


@pytest.mark.rule("O2", "W2")
async def test_a_swallowed_error_is_not_a_success(shop: Shop) -> None:
    claim = await shop.claim()
    session = shop.session()
    session.add(Payment(what="a"))
    await session.flush()
    with pytest.raises(DBAPIError):
        await session.execute(text("SELECT nonsense"))
    with pytest.raises(CommitFailedError):
        await claim.complete(PAID)
    await session.close()
    assert await shop.effects() == []


@pytest.mark.rule("O2", "W2")
async def test_an_error_swallowed_on_the_connection_is_not_a_success(shop: Shop) -> None:
    claim = await shop.claim()
    await claim.tx.execute(text("INSERT INTO payment (what) VALUES ('a')"))
    with pytest.raises(DBAPIError):
        await claim.tx.execute(text("SELECT nonsense"))
    with pytest.raises(CommitFailedError):
        await claim.complete(PAID)
    assert await shop.effects() == []


@pytest.mark.rule("W2", "A5")
@pytest.mark.parametrize("also", [[], ["BEGIN"]])
async def test_a_commit_as_text_leaves_the_key_in_doubt(shop: Shop, also: list[str]) -> None:
    claim = await shop.claim()
    async with shop.session() as session:
        session.add(Payment(what="a"))
        await session.flush()
        for sql in ("COMMIT", *also):
            await session.execute(text(sql))
        with pytest.raises(CommitFailedError) as failed:
            await claim.complete(PAID)
    assert isinstance(failed.value.decision, InDoubt)
    restore(None)
    assert isinstance(await shop.acquire(), InDoubt)


async def test_the_ends_of_the_transaction_are_refused_on_the_connection(shop: Shop) -> None:
    claim = await shop.claim()
    await claim.tx.execute(text("INSERT INTO payment (what) VALUES ('a')"))
    for end in (claim.tx.commit, claim.tx.rollback, claim.tx.close):
        with pytest.raises(UsageError, match="Semel commits effect and answer together"):
            await end()
    await claim.complete(PAID)
    assert await shop.effects() == ["a"]


async def test_savepoints_on_the_connection(shop: Shop) -> None:
    claim = await shop.claim()
    nested = await claim.tx.begin_nested()
    await claim.tx.execute(text("INSERT INTO payment (what) VALUES ('never')"))
    await nested.rollback()
    async with claim.tx.begin_nested():
        await claim.tx.execute(text("INSERT INTO payment (what) VALUES ('a')"))
    await claim.complete(PAID)
    assert await shop.effects() == ["a"]


async def test_a_rollback_does_not_undo_what_another_session_committed(shop: Shop) -> None:
    claim = await shop.claim()
    async with shop.session() as one, shop.session() as other:
        one.add(Payment(what="a"))
        await one.flush()
        other.add(Payment(what="b"))
        await other.commit()
        with pytest.raises(UsageError, match="another session of the same request"):
            await one.rollback()
    await claim.release()
    assert await shop.effects() == []


async def test_what_another_session_rolled_back_is_not_committed_quietly(shop: Shop) -> None:
    claim = await shop.claim()
    one, other = shop.session(), shop.session()
    one.add(Payment(what="a"))
    await one.flush()
    other.add(Payment(what="b"))
    await other.flush()
    await one.rollback()  # and b with it: their savepoints are a stack
    with pytest.raises(UsageError, match="is gone"):
        await other.commit()
    await claim.release()
    await one.close()
    await other.close()
    assert await shop.effects() == []


@pytest.mark.rule("O7")
async def test_a_session_is_over_with_its_claim(shop: Shop) -> None:
    claim = await shop.claim()
    session = shop.session()
    session.add(Payment(what="a"))
    await session.commit()
    connection = claim.tx
    await claim.complete(PAID)
    with pytest.raises(ClaimClosedError, match="new session"):
        await session.execute(select(Payment))
    with pytest.raises(StatementError, match="the claim is settled"):
        await connection.execute(text("SELECT 1"))
    await session.close()
    async with shop.session() as fresh:  # work after the answer
        fresh.add(Payment(what="afterwards"))
        await fresh.commit()
    restore(None)
    async with session:  # and the old one outside of the request
        assert len((await session.scalars(select(Payment))).all()) == 2
    assert await shop.effects() == ["a", "afterwards"]


async def test_outside_a_claim_a_session_is_like_any_other(shop: Shop) -> None:
    async with shop.session() as session:
        session.add(Payment(what="a"))
        await session.commit()
        session.add(Payment(what="never"))
    assert await shop.effects() == ["a"]


@pytest.mark.rule("O5", "W2")
async def test_a_released_claim_leaves_sessions_that_can_be_closed(shop: Shop) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        claim = await shop.claim()
        async with shop.session() as session, session.begin():
            session.add(Payment(what="a"))
            await session.flush()
            await claim.release()
    assert await shop.effects() == []


async def test_sessions_of_another_engine_stay_out(shop: Shop, postgres_server: str) -> None:
    with fresh_database(postgres_server) as url:
        async with orm_shop(url, "asyncpg") as elsewhere:
            await _stay_out(shop, elsewhere)


async def _stay_out(shop: Shop, elsewhere: Shop) -> None:
    claim = await shop.claim()
    async with elsewhere.session() as session:
        session.add(Payment(what="there"))
        await session.commit()
    assert "there" in await elsewhere.effects()
    assert not claim.touched
    await claim.complete(PAID)
    assert await shop.effects() == []


async def test_a_session_class_of_the_application(shop: Shop) -> None:
    class Audited(Session):
        def audited(self) -> bool:
            return True

    class AuditedAsync(AsyncSession):
        pass

    made: list[Any] = []
    event.listen(Audited, "after_begin", lambda *_: made.append(1))
    maker = async_sessionmaker(
        shop.engine, class_=AuditedAsync, sync_session_class=Audited, expire_on_commit=False
    )
    claim = await shop.claim()
    async with maker() as session:
        assert isinstance(session, AuditedAsync)
        assert isinstance(session.sync_session, Audited)
        payment = Payment(what="a")
        session.add(payment)
        await session.commit()
        assert payment.what == "a"
        assert await shop.effects() == []
    assert made
    await claim.complete(PAID)
    assert await shop.effects() == ["a"]


async def test_two_phase_sessions_are_refused(shop: Shop) -> None:
    claim = await shop.claim()
    async with shop.session(twophase=True) as session:
        with pytest.raises(UsageError, match="twophase"):
            await session.execute(select(Payment))
    await claim.release()


@pytest.mark.rule("A2", "A4")
async def test_a_joined_claim_is_renewed_through_the_engine(joined_shop: Shop) -> None:
    guard = joined_shop.guard.with_options(lease=0.6)
    joined_shop.guard = guard
    claim = await joined_shop.claim()
    first = await joined_shop.query("SELECT lease_expires_at FROM semel_claim")
    while await joined_shop.query("SELECT lease_expires_at FROM semel_claim") == first:
        pass
    assert not claim.lost
    await claim.release()


@pytest.mark.rule("A3")
async def test_the_usual_handler_costs_no_statement_more(pg_database: str) -> None:
    """One session and one commit: no savepoint beside the claim's own."""
    async with orm_shop(pg_database, "asyncpg") as shop:
        sent: list[str] = []
        claim = await shop.claim()
        parts = claim.unit.wire.parts  # type: ignore[attr-defined]
        send = parts._command

        def note(sql: str) -> object:
            sent.append(sql)
            return send(sql)

        parts._command = note
        await commit_one(shop)
        await claim.complete(PAID)
        assert sent == []
