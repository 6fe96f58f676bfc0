"""Sessions of SQLAlchemy keep their habits, and the promise holds (rule W2)."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from orm import DECLINED, ON_FILE, ON_POSTGRES, PAID, Payment, Shop, orm_shop
from semel.core.model import InDoubt, Mode
from semel.errors import ClaimClosedError, CommitFailedError, UsageError
from semel.guard import restore
from semel.participants import gathering
from semel.sqlalchemy import async_sessionmaker

pytestmark = pytest.mark.rule("W2")


@pytest.fixture(params=[*ON_POSTGRES, *ON_FILE])
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def database(driver: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if driver in ON_FILE:
        return str(tmp_path / "shop.db")
    address: str = request.getfixturevalue("pg_database")
    return address


@pytest.fixture
async def shop(driver: str, database: str) -> AsyncIterator[Shop]:
    async with orm_shop(database, driver) as opened:
        yield opened


@pytest.fixture
async def joined_shop(driver: str, database: str) -> AsyncIterator[Shop]:
    async with orm_shop(database, driver, mode=Mode.JOINED) as opened:
        yield opened


@pytest.fixture(params=ON_POSTGRES)
async def postgres_shop(request: pytest.FixtureRequest, pg_database: str) -> AsyncIterator[Shop]:
    async with orm_shop(pg_database, request.param) as opened:
        yield opened


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
    assert await shop.replays()


async def test_a_begin_block_round_the_answer(shop: Shop) -> None:
    with gathering():
        async with shop.session() as session, session.begin():
            claim = await shop.claim()
            session.add(Payment(what="a"))
            await claim.complete(PAID)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("O2")
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


@pytest.mark.rule("A2")
async def test_authentication_inside_a_begin_block(shop: Shop) -> None:
    with gathering():
        async with shop.session.begin() as session:
            assert (await session.scalars(select(Payment))).all() == []
            claim = await shop.claim()
            # The session has let go of its own; on a file the claim takes one later.
            assert shop.engine.pool.checkedout() == (0 if shop.on_file else 1)  # type: ignore[attr-defined]
            session.add(Payment(what="a"))
            await claim.complete(PAID)
    assert await shop.effects() == ["a"]


@pytest.mark.rule("A2")
async def test_authentication_through_the_same_session(driver: str, database: str) -> None:
    """What it did before the claim is committed, and its connection is free for the claim."""
    async with orm_shop(database, driver, size=1) as shop:
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
    assert not await shop.replays()


@pytest.mark.rule("O2")
async def test_a_swallowed_error_is_not_a_success(postgres_shop: Shop) -> None:
    shop = postgres_shop
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


@pytest.mark.rule("O2")
async def test_an_error_swallowed_on_the_connection_is_not_a_success(postgres_shop: Shop) -> None:
    shop = postgres_shop
    claim = await shop.claim()
    await claim.tx.execute(text("INSERT INTO payment (what) VALUES ('a')"))
    with pytest.raises(DBAPIError):
        await claim.tx.execute(text("SELECT nonsense"))
    with pytest.raises(CommitFailedError):
        await claim.complete(PAID)
    assert await shop.effects() == []


@pytest.mark.rule("A5")
@pytest.mark.parametrize("also", [[], ["BEGIN"]])
async def test_a_commit_as_text_leaves_the_key_in_doubt(
    postgres_shop: Shop, also: list[str]
) -> None:
    shop = postgres_shop
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
    with pytest.raises(ClaimClosedError, match="the claim is settled"):
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


@pytest.mark.rule("O5")
async def test_a_released_claim_leaves_sessions_that_can_be_closed(shop: Shop) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        claim = await shop.claim()
        async with shop.session() as session, session.begin():
            session.add(Payment(what="a"))
            await session.flush()
            await claim.release()
    assert await shop.effects() == []


async def test_sessions_of_another_engine_stay_out(shop: Shop, tmp_path: Path) -> None:
    async with orm_shop(str(tmp_path / "elsewhere.db"), "aiosqlite") as elsewhere:
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
async def test_the_usual_handler_costs_no_statement_more(shop: Shop) -> None:
    """One session and one commit: no savepoint beside the claim's own."""
    sent: list[str] = []
    claim = await shop.claim()
    parts = claim.unit.wire.parts  # type: ignore[attr-defined]
    send = parts._command

    def note(sql: str) -> object:
        sent.append(sql)
        return send(sql)

    parts._command = note
    async with shop.session() as session:
        session.add(Payment(what="a"))
        await session.commit()
    await claim.complete(PAID)
    assert sent == []
    assert await shop.effects() == ["a"]
