"""The memory store behaves as a database does, as far as claims can notice."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest

from claims import ANSWER, LEASE, acquire, complete_only, held, new_claim, settle
from semel import memory
from semel.core.model import Execute, InDoubt, InFlight, Mismatch, Mode, NewClaim, Replay, Status
from semel.errors import (
    ClaimClosedError,
    ClaimLostError,
    StoreConflictError,
    StoreError,
    StoreUnavailableError,
    UsageError,
)
from semel.store import schema
from semel.store.listing import list_claims
from semel.store.programs import (
    abandon,
    look,
    open_effect,
)
from semel.store.statement import BEGIN, COMMIT, ROLLBACK, ROLLBACK_TO, Rows, Statement
from semel.store.tables import Tables
from semel.testing.clock import FakeClock

if TYPE_CHECKING:
    from semel.store.protocol import AsyncStore

IDLE = 30.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> memory.AsyncStore:
    return memory.AsyncStore(clock=clock)


async def run_handler(unit: memory.AsyncUnit, new: NewClaim, *effects: object) -> None:
    """Do what a guard and a handler do between acquire and settlement."""
    if new.mode is Mode.JOINED:
        await unit.run(open_effect(held(new), IDLE, new.lock))
    for effect in effects:
        await unit.tx.append(effect)


both_modes = pytest.mark.parametrize("mode", [Mode.ATOMIC, Mode.JOINED])


@pytest.mark.rule("A2")
@both_modes
async def test_effect_and_answer_appear_together(store: memory.AsyncStore, mode: Mode) -> None:
    new, unit = new_claim(mode=mode), store.unit()
    assert await unit.run(acquire(new)) == Execute(token=1)
    await run_handler(unit, new, "paid")
    assert store.effects == []

    await unit.run(settle(new))
    await unit.close()

    assert store.effects == ["paid"]
    assert await store.run(acquire(new_claim(mode=mode))) == Replay(ANSWER)
    assert await store.run(acquire(new_claim(body="two", mode=mode))) == Mismatch()


@pytest.mark.rule("A2")
@both_modes
async def test_a_closed_unit_leaves_no_effect(store: memory.AsyncStore, mode: Mode) -> None:
    new, unit = new_claim(mode=mode), store.unit()
    await unit.run(acquire(new))
    await run_handler(unit, new, "paid")
    await unit.close()
    await unit.close()

    assert store.effects == []
    rival = await store.run(acquire(new_claim(mode=mode)))
    assert rival == (Execute(token=1) if mode is Mode.ATOMIC else InFlight(LEASE))


@pytest.mark.rule("O2")
@both_modes
async def test_an_undone_handler_keeps_its_answer(store: memory.AsyncStore, mode: Mode) -> None:
    new, unit = new_claim(mode=mode), store.unit()
    await unit.run(acquire(new))
    await run_handler(unit, new, "paid")
    await unit.run(settle(new, undo=True))

    assert store.effects == []
    assert await store.run(acquire(new_claim(mode=mode))) == Replay(ANSWER)


async def test_an_open_claim_is_seen_by_its_own_transaction_only(store: memory.AsyncStore) -> None:
    new, unit = new_claim(mode=Mode.ATOMIC), store.unit()
    await unit.run(acquire(new))

    assert await store.run(look(new.identity)) is None
    assert await store.run(list_claims(10)) == []
    own = await unit.run(look(new.identity, new.lock))
    assert own is not None
    assert own.owner == new.owner
    assert own.expires_at == math.inf


@pytest.mark.rule("A1")
async def test_an_atomic_rival_is_told_at_once_and_leaves_no_lock(
    store: memory.AsyncStore,
) -> None:
    new, unit, rival = new_claim(mode=Mode.ATOMIC), store.unit(), store.unit()
    await unit.run(acquire(new))

    assert await rival.run(acquire(new_claim(mode=Mode.ATOMIC))) == InFlight()
    assert not rival.begun
    await unit.run(abandon(begun=unit.begun))
    assert await rival.run(acquire(new_claim(mode=Mode.ATOMIC))) == Execute(token=1)


async def test_a_joined_rival_of_an_open_atomic_claim_gives_up(store: memory.AsyncStore) -> None:
    unit = store.unit()
    await unit.run(acquire(new_claim(mode=Mode.ATOMIC)))
    with pytest.raises(StoreUnavailableError, match="colliding"):
        await store.run(acquire(new_claim()))


@pytest.mark.rule("A1")
@both_modes
async def test_of_many_tasks_one_executes(mode: Mode) -> None:
    store = memory.AsyncStore(interleave=True)
    units = [store.unit() for _ in range(20)]
    decisions = await asyncio.gather(*(unit.run(acquire(new_claim(mode=mode))) for unit in units))
    assert sum(isinstance(decision, Execute) for decision in decisions) == 1
    assert sum(isinstance(decision, InFlight) for decision in decisions) == 19


@pytest.mark.rule("W2")
@both_modes
async def test_a_commit_behind_our_back_is_noticed(store: memory.AsyncStore, mode: Mode) -> None:
    new, unit = new_claim(mode=mode), store.unit()
    await unit.run(acquire(new))
    await run_handler(unit, new, "early")
    assert not unit.escaped
    unit.session(COMMIT)
    assert unit.escaped
    assert not unit.begun

    unit.session(BEGIN)  # a transaction is open again, but it is not ours
    with pytest.raises(ClaimLostError):
        await unit.run(settle(new))
    await unit.close()
    decision = await store.run(acquire(new_claim(mode=mode)))
    assert decision == (InDoubt() if mode is Mode.ATOMIC else InFlight(LEASE))


@pytest.mark.rule("O2")
async def test_an_aborted_transaction_can_not_be_committed(store: memory.AsyncStore) -> None:
    stranger, unit = new_claim("other"), store.unit()
    new = new_claim(mode=Mode.ATOMIC)
    await unit.run(acquire(new))
    await run_handler(unit, new, "paid")
    with pytest.raises(ClaimLostError):
        await unit.run(complete_only(stranger))

    with pytest.raises(StoreError, match="aborted"):
        await unit.tx.append("more")
    with pytest.raises(StoreError, match="aborted"):
        await unit.run(settle(new))
    with pytest.raises(StoreError, match="aborted"):
        unit.session(COMMIT)
    assert not unit.begun
    assert store.effects == []
    assert await store.run(acquire(new_claim(mode=Mode.ATOMIC))) == Execute(token=1)


@pytest.mark.rule("O2")
@both_modes
async def test_an_error_that_the_handler_swallowed_is_not_settled(
    store: memory.AsyncStore, mode: Mode
) -> None:
    new, unit = new_claim(mode=mode), store.unit()
    await unit.run(acquire(new))
    await run_handler(unit, new, "paid")
    unit.tx.abort()
    with pytest.raises(StoreError, match="aborted"):
        await unit.run(settle(new))
    await unit.close()
    assert store.effects == []
    with pytest.raises(ClaimClosedError):
        unit.tx.abort()


@both_modes
async def test_tx_is_closed_after_the_settlement(store: memory.AsyncStore, mode: Mode) -> None:
    new, unit = new_claim(mode=mode), store.unit()
    await unit.run(acquire(new))
    await run_handler(unit, new)
    await unit.run(settle(new))
    with pytest.raises(ClaimClosedError):
        await unit.tx.append("late")
    await unit.close()
    with pytest.raises(ClaimClosedError):
        await unit.run(look(new.identity))


async def test_a_cancelled_program_leaves_nothing_behind() -> None:
    store = memory.AsyncStore(interleave=True)
    unit = store.unit()
    task = asyncio.create_task(unit.run(acquire(new_claim(mode=Mode.ATOMIC))))
    for _ in range(3):  # one turn before each statement
        await asyncio.sleep(0)
    assert unit.begun
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await unit.close()
    assert isinstance(await store.run(acquire(new_claim(mode=Mode.ATOMIC))), Execute)


async def test_claims_are_listed_newest_first_without_keys_or_bodies(
    store: memory.AsyncStore, clock: FakeClock
) -> None:
    first, second, unit = new_claim("first"), new_claim("second"), store.unit()
    await unit.run(acquire(first))
    await run_handler(unit, first)
    await unit.run(settle(first))
    clock.advance(1)
    await store.run(acquire(second))

    newest, oldest = await store.run(list_claims(10))

    assert (newest.key, newest.status) == (second.identity.key, Status.IN_PROGRESS)
    assert (newest.answer_status, newest.answer_bytes) == (None, None)
    assert (oldest.key, oldest.status) == (first.identity.key, Status.COMPLETED)
    assert (oldest.answer_status, oldest.answer_bytes) == (201, len(ANSWER.body or b""))
    assert await store.run(list_claims(1)) == [newest]


async def test_one_statement_can_be_replaced_to_make_a_broken_store() -> None:
    class Forgetful(memory.Statements):
        def claim_insert(self, tx: memory.Transaction, values: Any) -> Rows:
            self.database.rows.clear()
            return super().claim_insert(tx, values)

    class ForgetfulStore(memory.AsyncStore):
        statements = Forgetful

    store = ForgetfulStore()
    for _ in range(2):
        assert await store.run(acquire(new_claim())) == Execute(token=1)


@pytest.mark.rule("S3")
async def test_migrations_are_recorded_once(store: memory.AsyncStore) -> None:
    with pytest.raises(StoreError):
        await store.run(schema.check("sqlite"))
    newest = schema.newest("sqlite")
    assert await store.run(schema.migrate("sqlite", Tables())) == list(range(1, newest + 1))
    assert await store.run(schema.migrate("sqlite", Tables())) == []
    await store.run(schema.check("sqlite"))


async def test_two_migrations_at_once_collide(store: memory.AsyncStore) -> None:
    lock = Statement("version_lock", {"lock": 7})
    first, second = store.session(), store.session()
    first(BEGIN)
    first(lock)
    with pytest.raises(StoreConflictError):
        second(lock)
    first(ROLLBACK)
    second(lock)


async def test_what_needs_no_work_succeeds(store: memory.AsyncStore) -> None:
    await store.open()
    assert await store.migrate() == ()
    await store.check()
    await store.aclose()
    assert store.tables == Tables()


@pytest.mark.parametrize("modes", [(), (Mode.LEASED,), (Mode.JOINED, Mode.LEASED)])
def test_a_mode_that_it_does_not_have_is_refused(modes: tuple[Mode, ...]) -> None:
    with pytest.raises(UsageError):
        memory.AsyncStore(modes=modes)


def test_the_first_mode_is_the_default() -> None:
    assert memory.AsyncStore().modes == (Mode.JOINED, Mode.ATOMIC)
    assert memory.AsyncStore(modes=(Mode.ATOMIC,)).modes == (Mode.ATOMIC,)


def test_a_misused_connection_says_so(store: memory.AsyncStore) -> None:
    session = store.session()
    with pytest.raises(ClaimClosedError):
        session(COMMIT)
    session(BEGIN)
    with pytest.raises(StoreError, match="already"):
        session(BEGIN)
    with pytest.raises(StoreError, match="savepoint"):
        session(ROLLBACK_TO)


def test_it_is_a_store(store: memory.AsyncStore) -> None:
    as_store: AsyncStore[memory.MemoryTx] = store
    assert not as_store.lazy_effect
    assert not as_store.claims_in_transaction
    assert not as_store.reads_first
