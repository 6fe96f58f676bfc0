"""Leases, takeovers and expiry in the memory store, each at its exact moment."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from claims import ANSWER, LEASE, RETENTION, acquire, complete_only, held, new_claim, settle
from semel import memory
from semel.core.model import Execute, InDoubt, InFlight, Mismatch, Mode, NewClaim, Replay
from semel.errors import (
    ClaimLostError,
    StoreConflictError,
)
from semel.store.listing import list_claims
from semel.store.programs import (
    abandon,
    look,
    open_effect,
    purge,
    put_in_doubt,
    release,
    renew,
)
from semel.store.statement import BEGIN, Statement, Steps, pump
from semel.testing.clock import FakeClock

if TYPE_CHECKING:
    from semel.core.model import Decision
    from semel.memory.store import Session

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


@pytest.mark.rule("A4")
async def test_a_lease_ends_at_its_exact_moment(store: memory.AsyncStore, clock: FakeClock) -> None:
    await store.run(acquire(new_claim()))
    clock.advance(LEASE - 0.5)
    assert await store.run(acquire(new_claim())) == InFlight(0.5)
    clock.advance(0.5)
    assert await store.run(acquire(new_claim(body="two"))) == Mismatch()
    assert await store.run(acquire(new_claim())) == Execute(token=2, takeover=True)


@pytest.mark.rule("A4")
async def test_an_owner_that_was_overtaken_changes_nothing(
    store: memory.AsyncStore, clock: FakeClock
) -> None:
    old, unit = new_claim(), store.unit()
    await unit.run(acquire(old))
    await run_handler(unit, old, "paid twice")
    clock.advance(LEASE)
    taker = new_claim()
    await store.run(acquire(taker))

    with pytest.raises(ClaimLostError):
        await unit.run(settle(old))
    assert unit.begun
    await unit.close()
    assert await store.run(release(held(old))) is False
    assert await store.run(put_in_doubt(held(old))) is False
    assert await store.run(renew([(held(old), LEASE), (held(taker), LEASE)])) == {old.owner}
    assert store.effects == []


@pytest.mark.rule("A4")
async def test_the_token_grows_after_a_release(store: memory.AsyncStore) -> None:
    first = new_claim()
    await store.run(acquire(first))
    assert await store.run(release(held(first))) is True
    assert await store.run(acquire(new_claim())) == Execute(token=2)


async def test_our_own_row_is_recognised(store: memory.AsyncStore) -> None:
    new = new_claim()
    await store.run(acquire(new))
    assert await store.run(acquire(new)) == Execute(token=1)


@pytest.mark.rule("A4")
async def test_renewal_passes_over_a_row_that_is_being_settled(
    store: memory.AsyncStore, clock: FakeClock
) -> None:
    settling, running = new_claim("settling"), new_claim("running")
    unit = store.unit()
    await unit.run(acquire(settling))
    await store.run(acquire(running))
    await run_handler(unit, settling)
    await unit.run(complete_only(settling))
    clock.advance(LEASE / 2)

    lost = await store.run(renew([(held(settling), LEASE), (held(running), LEASE)]))

    assert lost == set()
    found = await store.run(look(running.identity))
    assert found is not None
    assert found.lease_expires_at == clock() + LEASE


async def test_nobody_takes_a_row_that_another_transaction_has_written(
    store: memory.AsyncStore, clock: FakeClock
) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new))
    await run_handler(unit, new)
    await unit.run(complete_only(new))
    clock.advance(LEASE)

    # Whoever wants to take it is answered, and does not wait for the row.
    assert await store.run(acquire(new_claim())) == InFlight()
    with pytest.raises(StoreConflictError):
        await store.run(release(held(new)))
    await unit.run(abandon(begun=True))
    assert await store.run(acquire(new_claim())) == Execute(token=2, takeover=True)


async def test_an_abandoned_joined_claim_is_taken_over_in_atomic_mode(
    store: memory.AsyncStore, clock: FakeClock
) -> None:
    await store.run(acquire(new_claim()))
    clock.advance(LEASE)
    new, unit, rival = new_claim(mode=Mode.ATOMIC), store.unit(), store.unit()

    assert await unit.run(acquire(new)) == Execute(token=2, takeover=True)
    assert await rival.run(acquire(new_claim(mode=Mode.ATOMIC))) == InFlight()
    await unit.run(settle(new))
    assert await rival.run(acquire(new_claim(mode=Mode.ATOMIC))) == Replay(ANSWER)


@dataclass
class Paused:
    """An acquire that stopped in front of one of its statements."""

    session: Session
    steps: Steps[Decision]
    statement: Statement

    def go_on(self) -> Decision:
        def rest() -> Steps[Decision]:
            try:
                statement = self.statement
                while True:
                    statement = self.steps.send((yield statement))
            except StopIteration as stop:
                decision: Decision = stop.value
                return decision

        return pump(self.session, rest())


def pause(store: memory.AsyncStore, new: NewClaim, name: str) -> Paused:
    session, steps = store.session(), acquire(new)
    statement = next(steps)
    while statement.name != name:
        statement = steps.send(session(statement))
    return Paused(session, steps, statement)


@pytest.mark.rule("A4")
async def test_of_two_takers_that_judged_one_row_the_quicker_has_it(
    store: memory.AsyncStore, clock: FakeClock
) -> None:
    await store.run(acquire(new_claim()))
    clock.advance(LEASE)
    slow = pause(store, new_claim(), "claim_take")
    assert await store.run(acquire(new_claim())) == Execute(token=2, takeover=True)
    assert slow.go_on() == InFlight()


@pytest.mark.rule("A4")
async def test_a_lease_that_was_renewed_after_the_look_is_not_taken(
    store: memory.AsyncStore, clock: FakeClock
) -> None:
    owner = new_claim()
    await store.run(acquire(owner))
    clock.advance(LEASE)
    taker = pause(store, new_claim(), "claim_take")
    assert await store.run(renew([(held(owner), LEASE)])) == set()
    assert taker.go_on() == InFlight()


async def test_a_row_that_was_purged_after_the_look_is_not_taken(
    store: memory.AsyncStore, clock: FakeClock
) -> None:
    await store.run(acquire(new_claim()))
    clock.advance(RETENTION)
    taker = pause(store, new_claim(), "claim_take")
    assert await store.run(purge(1)) == 1
    assert taker.go_on() == InFlight()


@pytest.mark.rule("A1")
async def test_an_atomic_taker_holds_off_its_rivals_by_the_lock(
    store: memory.AsyncStore, clock: FakeClock
) -> None:
    await store.run(acquire(new_claim()))
    clock.advance(LEASE)
    taker = pause(store, new_claim(mode=Mode.ATOMIC), "claim_take")
    assert await store.run(acquire(new_claim(mode=Mode.ATOMIC))) == InFlight()
    assert taker.go_on() == Execute(token=2, takeover=True)


@pytest.mark.rule("X1")
@both_modes
async def test_a_settled_claim_expires_at_its_exact_moment(
    store: memory.AsyncStore, clock: FakeClock, mode: Mode
) -> None:
    new, unit = new_claim(mode=mode), store.unit()
    await unit.run(acquire(new))
    await run_handler(unit, new)
    await unit.run(settle(new))
    clock.advance(RETENTION - 1)
    assert await store.run(acquire(new_claim(mode=mode))) == Replay(ANSWER)
    clock.advance(1)
    assert await store.run(acquire(new_claim(body="two", mode=mode))) == Execute(token=2)


@pytest.mark.rule("X2", "A5")
async def test_purge_takes_what_is_absent_and_old_and_no_more_than_asked(
    store: memory.AsyncStore, clock: FakeClock
) -> None:
    released, doubtful, abandoned = (new_claim(key) for key in ("released", "doubt", "abandoned"))
    for new in (released, doubtful, abandoned):
        await store.run(acquire(new))
    await store.run(release(held(released)))
    await store.run(put_in_doubt(held(doubtful)))
    clock.advance(RETENTION - 1)
    assert await store.run(purge(10)) == 0  # the token of a released claim is still needed
    clock.advance(1)
    running = new_claim("running", lease=2 * RETENTION)
    await store.run(acquire(running))
    clock.advance(RETENTION)

    assert await store.run(purge(1)) == 1
    assert await store.run(purge(10)) == 1
    assert await store.run(purge(10)) == 0
    left = await store.run(list_claims(10))
    assert [claim.key for claim in left] == [running.identity.key, doubtful.identity.key]
    assert await store.run(acquire(new_claim("doubt"))) == InDoubt()


@pytest.mark.rule("A4")
async def test_a_link_renews_from_another_thread(store: memory.AsyncStore) -> None:
    new = new_claim()
    await store.run(acquire(new))
    lost: list[set[bytes]] = []

    def beat() -> None:
        with store.link() as link:
            lost.append(pump(link, renew([(held(new), 2 * LEASE)])))
            link(BEGIN)  # what is left open ends with the link

    thread = threading.Thread(target=beat)
    thread.start()
    thread.join()

    assert lost == [set()]
    found = await store.run(look(new.identity))
    assert found is not None
    assert found.lease_expires_at == found.now + 2 * LEASE
