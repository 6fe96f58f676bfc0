"""The guard on PostgreSQL: what handlers do to a transaction, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg_pool import AsyncConnectionPool

from guarding import ANSWER, Shop, pay, shop
from semel.claim import AsyncClaim
from semel.core.model import Answer, InDoubt, InFlight, Mismatch, Mode, Replay
from semel.core.options import Options
from semel.errors import (
    ClaimClosedError,
    CommitFailedError,
    StoreSchemaError,
    StoreUnavailableError,
    UsageError,
)
from semel.guard import AsyncGuard, current
from semel.psycopg import AsyncStore
from semel.store import programs
from semel.store.unit import Unit

LEVELS = [
    IsolationLevel.READ_COMMITTED,
    IsolationLevel.REPEATABLE_READ,
    IsolationLevel.SERIALIZABLE,
]


@pytest.fixture(params=[Mode.ATOMIC, Mode.JOINED])
async def opened(pg_database: str, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    async with shop(pg_database, mode=request.param) as open_shop:
        yield open_shop


@pytest.mark.rule("A2", "R1", "S2")
async def test_effect_and_answer_are_committed_together(opened: Shop) -> None:
    claim = await opened.claim("k")
    await pay(claim)
    assert await opened.effects() == []
    await claim.complete(ANSWER)
    assert await opened.effects() == ["paid"]
    assert await opened.acquire("k") == Replay(ANSWER)
    assert current() is claim
    with pytest.raises(ClaimClosedError):
        _ = claim.tx


@pytest.mark.rule("W2")
async def test_the_transaction_can_not_be_ended_by_its_methods(opened: Shop) -> None:
    claim = await opened.claim("k")
    await pay(claim, "kept")
    with pytest.raises(UsageError, match="commit"):
        await claim.tx.commit()
    with pytest.raises(UsageError, match="rollback"):
        await claim.tx.rollback()
    with pytest.raises(UsageError, match="set_autocommit"):
        await claim.tx.set_autocommit(False)
    async with claim.tx.transaction(force_rollback=True):
        await pay(claim, "undone")
    connection = claim.tx
    await claim.complete(ANSWER)
    assert await opened.effects() == ["kept"]
    await connection.commit()  # the application's own again


ESCAPES = [["COMMIT"], ["COMMIT", "BEGIN"]]


async def escape(claim: AsyncClaim[psycopg.AsyncConnection[Any]], ends: list[str]) -> None:
    """Do an effect and end the transaction as text, which nobody can prevent."""
    await pay(claim)
    for text in ends:
        await claim.tx.execute(text.encode())


@pytest.mark.rule("W2", "A5")
@pytest.mark.parametrize("ends", ESCAPES)
@pytest.mark.parametrize("status", [201, 422, 500])
async def test_a_commit_as_text_is_detected_and_never_runs_twice(
    opened: Shop, ends: list[str], status: int
) -> None:
    claim = await opened.claim("k")
    await escape(claim, ends)
    if (opened.guard.mode, status, len(ends)) == (Mode.ATOMIC, 500, 2):
        await claim.complete(Answer(status))  # only its row, looked at later, can tell
    else:
        with pytest.raises(CommitFailedError) as failed:
            await claim.complete(Answer(status))
        assert failed.value.decision == InDoubt()
    assert await opened.effects() == ["paid"]
    assert await opened.acquire("k") == InDoubt()


@pytest.mark.rule("W2", "A5", "O6")
@pytest.mark.parametrize("ends", ESCAPES)
async def test_a_commit_as_text_before_an_exception_is_detected(
    opened: Shop, ends: list[str]
) -> None:
    claim = await opened.claim("k")
    await escape(claim, ends)
    await claim.release()
    assert await opened.effects() == ["paid"]
    assert await opened.acquire("k") == InDoubt()


@pytest.mark.rule("W2")
@pytest.mark.parametrize("ends", [["ROLLBACK"], ["ROLLBACK", "BEGIN"]])
async def test_a_rollback_as_text_is_never_a_success(opened: Shop, ends: list[str]) -> None:
    claim = await opened.claim("k")
    await escape(claim, ends)
    with pytest.raises(CommitFailedError):
        await claim.complete(ANSWER)
    assert await opened.effects() == []
    # The row of an atomic claim went with the rollback; a joined one can not tell.
    retry = await opened.acquire("k")
    assert isinstance(retry, AsyncClaim if opened.guard.mode is Mode.ATOMIC else InDoubt)


@pytest.mark.rule("O2")
async def test_an_aborted_transaction_is_never_a_success(opened: Shop) -> None:
    claim = await opened.claim("k")
    await pay(claim)
    with pytest.raises(psycopg.errors.UndefinedTable):
        await claim.tx.execute("SELECT * FROM nowhere")  # and the handler swallows it
    with pytest.raises(CommitFailedError) as failed:
        await claim.complete(ANSWER)
    assert failed.value.decision is None
    assert await opened.effects() == []
    assert isinstance(await opened.acquire("k"), AsyncClaim)


@pytest.mark.rule("O2")
async def test_an_aborted_transaction_still_stores_a_refusal(opened: Shop) -> None:
    claim = await opened.claim("k")
    with pytest.raises(psycopg.errors.UndefinedTable):
        await claim.tx.execute("SELECT * FROM nowhere")
    refusal = Answer(422, (), b"no")
    await claim.complete(refusal)
    assert await opened.acquire("k") == Replay(refusal)


@pytest.mark.rule("O4")
async def test_a_commit_that_fails_leaves_nothing(opened: Shop) -> None:
    async def pay_once() -> AsyncClaim[Any]:
        claim = await opened.claim("k")
        for _ in range(2):
            await claim.tx.execute("INSERT INTO effect (what, once) VALUES ('x', 'same')")
        return claim

    claim = await pay_once()
    claim.after_commit(lambda: pytest.fail("it was not committed"))
    with pytest.raises(CommitFailedError, match="23505"):
        await claim.complete(ANSWER)
    await claim.run_after_commit()
    assert await opened.effects() == []
    assert "commit-failed" in opened.names()
    assert isinstance(await opened.acquire("k"), AsyncClaim)


@pytest.mark.rule("O2", "A8")
async def test_a_failure_frees_the_key_and_leaves_no_effect(opened: Shop) -> None:
    claim = await opened.claim("k")
    await pay(claim)
    assert isinstance(await opened.acquire("k"), InFlight)
    await claim.complete(Answer(503, (), b"later"))
    assert await opened.effects() == []
    again = await opened.claim("k", b"another body is fine now")
    await pay(again)
    await again.complete(ANSWER)
    assert await opened.effects() == ["paid"]
    assert again.token > claim.token or opened.guard.mode is Mode.ATOMIC


@pytest.mark.rule("F5")
async def test_another_body_under_the_same_key(opened: Shop) -> None:
    claim = await opened.claim("k")
    running = await opened.acquire("k", b"other")
    # An open atomic claim can not be seen, so its request can not be compared yet.
    joined = opened.guard.mode is Mode.JOINED
    assert isinstance(running, Mismatch if joined else InFlight)
    await pay(claim)
    await claim.complete(ANSWER)
    assert await opened.acquire("k", b"other") == Mismatch()
    assert await opened.effects() == ["paid"]


@pytest.mark.rule("O5")
async def test_cancellation_during_the_commit_does_not_part_effect_and_claim(
    opened: Shop,
) -> None:
    claim = await opened.claim("k")
    await pay(claim)
    started = asyncio.Event()
    original = claim.unit.run

    async def slow(steps: Any, **more: Any) -> Any:
        started.set()
        await asyncio.sleep(0)
        return await original(steps, **more)

    claim.unit.run = slow  # type: ignore[method-assign]
    settling = asyncio.ensure_future(claim.complete(ANSWER))
    await started.wait()
    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    assert await opened.effects() == ["paid"]
    assert await opened.acquire("k") == Replay(ANSWER)


@pytest.mark.rule("O5", "O6")
async def test_a_cancelled_handler_leaves_nothing(opened: Shop) -> None:
    async def handler() -> None:
        claim = await opened.claim("k")
        try:
            await pay(claim)
            running.set()
            await claim.tx.execute("SELECT pg_sleep(60)")
        except BaseException:
            await claim.release()
            raise

    running = asyncio.Event()
    task = asyncio.ensure_future(handler())
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await opened.effects() == []
    # On a busy machine psycopg gives the query up; its server may take a moment to notice.
    async with asyncio.timeout(30):
        while not isinstance(await opened.acquire("k"), AsyncClaim):
            await asyncio.sleep(0.01)


@pytest.mark.rule("A6", "A1")
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("mode", [Mode.ATOMIC, Mode.JOINED])
@pytest.mark.parametrize("autocommit", [True, False])
async def test_contention_at_every_isolation_level(
    pg_database: str, level: IsolationLevel, mode: Mode, autocommit: bool
) -> None:
    async def configure(connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.set_isolation_level(level)
        await connection.set_autocommit(autocommit)

    async with (
        shop(pg_database) as opened,
        AsyncConnectionPool[Any](pg_database, open=False, max_size=8, configure=configure) as pool,
    ):
        opened.guard = AsyncGuard(AsyncStore(pool), Options(mode=mode))
        runs: dict[str, int] = {}

        async def request(key: str) -> str:
            claim = await opened.acquire(key)
            if not isinstance(claim, AsyncClaim):
                return type(claim).__name__
            runs[key] = runs.get(key, 0) + 1
            await pay(claim, key)
            await claim.complete(ANSWER)
            return "Executed"

        keys = [f"key-{number}" for number in range(20)]
        for key in keys:
            outcomes = await asyncio.gather(*(request(key) for _ in range(8)))
            assert outcomes.count("Executed") == 1
            assert set(outcomes) <= {"Executed", "InFlight", "Replay"}
        assert runs == dict.fromkeys(keys, 1)
        assert sorted(await opened.effects()) == sorted(keys)
        async with pool.connection() as connection:
            assert connection.autocommit is autocommit
        await opened.guard.aclose()


@pytest.mark.rule("A3", "A6")
async def test_unrelated_serializable_requests_do_not_abort_each_other(pg_database: str) -> None:
    async def configure(connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.set_isolation_level(IsolationLevel.SERIALIZABLE)

    async with (
        shop(pg_database) as opened,
        AsyncConnectionPool[Any](pg_database, open=False, max_size=8, configure=configure) as pool,
    ):
        opened.guard = AsyncGuard(AsyncStore(pool), Options(mode=Mode.ATOMIC))

        async def request(key: str) -> None:
            claim = await opened.claim(key)
            await pay(claim, key)
            await claim.complete(ANSWER)

        for start in range(0, 400, 8):
            await asyncio.gather(*(request(f"key-{n}") for n in range(start, start + 8)))
        assert len(await opened.effects()) == 400
        assert opened.names() == []


@pytest.mark.rule("A4", "A6")
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
async def test_a_renewed_lease_does_not_abort_the_completion(
    pg_database: str, level: IsolationLevel
) -> None:
    async def configure(connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.set_isolation_level(level)

    async with (
        shop(pg_database) as opened,
        AsyncConnectionPool[Any](pg_database, open=False, max_size=4, configure=configure) as pool,
    ):
        store = AsyncStore(pool)
        opened.guard = AsyncGuard(store, Options(mode=Mode.JOINED))
        claim = await opened.claim("k")
        await pay(claim)
        lost = await store.run(programs.renew([(claim._held, 60.0)]))
        assert lost == set()
        await claim.complete(ANSWER)
        assert await opened.effects() == ["paid"]
        await opened.guard.aclose()


@pytest.mark.rule("A7")
async def test_a_claim_whose_answer_got_lost_is_recognised(pg_database: str) -> None:
    async with shop(pg_database, mode=Mode.JOINED) as opened:
        unit_type = type(opened.guard.store.unit())
        original = unit_type.run
        failures = iter([True])

        async def lose_the_answer(self: Any, steps: Any, **more: Any) -> Any:
            result = await original(self, steps, **more)
            if next(failures, False):
                raise StoreUnavailableError("connection lost", outcome_unknown=True)
            return result

        unit_type.run = lose_the_answer  # type: ignore[method-assign]
        try:
            claim = await opened.claim("k")
        finally:
            unit_type.run = original  # type: ignore[method-assign]
        assert claim.token == 1
        await pay(claim)
        await claim.complete(ANSWER)
        assert await opened.effects() == ["paid"]


@pytest.mark.rule("O4")
async def test_a_commit_whose_answer_got_lost_is_recognised(opened: Shop) -> None:
    claim = await opened.claim("k")
    await pay(claim)
    original = claim.unit.run

    async def lose_the_answer(steps: Any, **more: Any) -> Any:
        await original(steps, **more)
        raise StoreUnavailableError("connection lost", outcome_unknown=True)

    claim.unit.run = lose_the_answer  # type: ignore[method-assign]
    await claim.complete(ANSWER)
    assert await opened.effects() == ["paid"]
    assert await opened.acquire("k") == Replay(ANSWER)


@pytest.mark.rule("O8")
async def test_an_unreachable_database_refuses_before_the_handler() -> None:
    store = AsyncStore.connect("postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1")
    store.pool.timeout = 0.2
    guard = AsyncGuard(store)
    opened = Shop(guard, "")
    with pytest.raises(StoreUnavailableError, match="no database connection"):
        await opened.acquire("k")
    await guard.aclose()


@pytest.mark.rule("S3")
async def test_missing_tables_are_named_with_what_to_do(pg_database: str) -> None:
    store = AsyncStore.connect(pg_database)
    opened = Shop(AsyncGuard(store), pg_database)
    with pytest.raises(StoreSchemaError, match="semel migrate"):
        await opened.acquire("k")
    await opened.guard.aclose()


@pytest.mark.rule("A4")
async def test_a_frozen_completion_does_not_hold_up_a_takeover(pg_database: str) -> None:
    async with shop(pg_database, mode=Mode.JOINED, lease=0.2) as opened:
        claim = await opened.claim("k")
        opened.guard._heartbeat.stop()
        await pay(claim)
        # Freeze after the completing update, before its commit.
        steps = programs.settle_joined(claim._held, ANSWER, begun=True, undo=False)
        unit = claim.unit
        assert isinstance(unit, Unit)
        assert unit.wire
        await unit.wire.run(next(steps))
        while (
            await opened.query("SELECT lease_expires_at <= clock_timestamp() FROM semel_claim")
        ) != [(True,)]:
            await asyncio.sleep(0.02)
        assert isinstance(await opened.acquire("k"), InFlight)  # answered, not held up
        await claim.release()
        steps.close()
        again = await opened.claim("k")
        await pay(again, "second")
        await again.complete(ANSWER)
        assert await opened.effects() == ["second"]


@pytest.mark.rule("A1", "A2")
async def test_a_claim_in_the_other_mode_is_answered_and_not_waited_for(pg_database: str) -> None:
    async with shop(pg_database, mode=Mode.ATOMIC) as opened:
        claim = await opened.claim("k")
        await pay(claim)
        opened.guard = opened.guard.with_options(mode=Mode.JOINED)
        async with asyncio.timeout(10):  # far below the idle timeout of the open claim
            rivals = await asyncio.gather(*(opened.acquire("k") for _ in range(20)))
            assert {type(rival) for rival in rivals} == {InFlight}
            other = await opened.claim("unrelated")
        await other.release()
        await claim.complete(ANSWER)
        assert await opened.acquire("k") == Replay(ANSWER)
        assert await opened.effects() == ["paid"]


@pytest.mark.rule("A4", "A2")
async def test_an_atomic_rival_of_a_frozen_joined_completion_is_answered(pg_database: str) -> None:
    async with shop(pg_database, mode=Mode.JOINED) as opened:
        claim = await opened.claim("k")
        await pay(claim)
        steps = programs.settle_joined(claim._held, ANSWER, begun=True, undo=False)
        unit = claim.unit
        assert isinstance(unit, Unit)
        assert unit.wire
        await unit.wire.run(next(steps))  # completed, not committed
        steps.close()
        opened.guard = opened.guard.with_options(mode=Mode.ATOMIC)
        async with asyncio.timeout(10):  # far below the idle timeout of the open claim
            assert isinstance(await opened.acquire("k"), InFlight)
        await claim.release()
        again = await opened.claim("k")
        await again.release()
