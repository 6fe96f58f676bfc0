"""The life of a claim in a file of SQLite."""

from __future__ import annotations

import asyncio
import math
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from claims import ANSWER, LEASE, RETENTION, held, new_claim
from claims import acquire as acquire_claim
from claims import settle as settle_claim
from semel.core.model import Execute, InDoubt, InFlight, Mismatch, Replay, Status
from semel.errors import (
    ClaimLostError,
    StoreConflictError,
)
from semel.sqlite import AsyncStore
from semel.store.listing import list_claims
from semel.store.programs import (
    abandon,
    look,
    purge,
    put_in_doubt,
    release,
    renew,
)
from semel.store.statement import pump
from semel.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semel.core.model import Decision, NewClaim
    from semel.sqlite import AsyncUnit
    from semel.store.statement import Steps


def acquire(new: NewClaim) -> Steps[Decision]:
    return acquire_claim(new, transaction=True)


async def settle(unit: AsyncUnit, new: NewClaim, *, undo: bool = False) -> None:
    await unit.run(settle_claim(new, begun=unit.begun, undo=undo))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[AsyncStore]:
    store = AsyncStore(tmp_path / "shop.db", clock=clock, busy_timeout=5.0)
    await store.migrate()
    async with store.connection() as connection:
        await connection.execute("CREATE TABLE effect (name TEXT) STRICT")
    yield store
    await store.aclose()


async def effects(store: AsyncStore) -> list[str]:
    async with store.connection() as connection:
        return [name for (name,) in await connection.execute("SELECT name FROM effect")]


async def pay(unit: AsyncUnit, name: str = "paid") -> None:
    await unit.tx.execute("INSERT INTO effect VALUES (?)", [name])


@pytest.mark.rule("A2")
async def test_effect_and_answer_appear_together(store: AsyncStore) -> None:
    new, unit = new_claim(), store.unit()
    assert await unit.run(look(new.identity), writes=False) is None
    assert await unit.run(acquire(new)) == Execute(token=1)
    assert not unit.begun
    await pay(unit)
    assert unit.begun
    assert await effects(store) == []

    await settle(unit, new)
    await unit.close()

    assert await effects(store) == ["paid"]
    assert await store.run(acquire(new_claim())) == Replay(ANSWER)
    assert await store.run(acquire(new_claim(body="two"))) == Mismatch()


@pytest.mark.rule("A2")
async def test_a_closed_unit_leaves_no_effect(store: AsyncStore) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new))
    await pay(unit)
    await unit.close()
    await unit.close()
    assert await effects(store) == []
    assert await store.run(acquire(new_claim())) == InFlight(LEASE)


@pytest.mark.rule("O2")
async def test_an_undone_handler_keeps_its_answer(store: AsyncStore) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new))
    await pay(unit)
    await settle(unit, new, undo=True)
    assert await effects(store) == []
    assert await store.run(acquire(new_claim())) == Replay(ANSWER)


async def test_a_handler_without_effects_settles_as_well(store: AsyncStore) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new))
    await settle(unit, new)
    assert await store.run(acquire(new_claim())) == Replay(ANSWER)


@pytest.mark.rule("A4", "O2")
async def test_a_released_claim_is_free_and_its_token_grows(store: AsyncStore) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new))
    await pay(unit)
    await unit.run(abandon(begun=unit.begun))
    assert await unit.run(release(held(new))) is True
    assert await store.run(release(held(new))) is False
    assert await effects(store) == []
    assert await store.run(acquire(new_claim(body="two"))) == Execute(token=2)


@pytest.mark.rule("A4")
async def test_a_lease_ends_at_its_exact_moment(store: AsyncStore, clock: FakeClock) -> None:
    await store.run(acquire(new_claim()))
    clock.advance(LEASE - 0.5)
    assert await store.run(acquire(new_claim())) == InFlight(0.5)
    clock.advance(0.5)
    assert await store.run(acquire(new_claim(body="two"))) == Mismatch()
    assert await store.run(acquire(new_claim())) == Execute(token=2, takeover=True)


@pytest.mark.rule("A4")
async def test_an_owner_that_was_overtaken_changes_nothing(
    store: AsyncStore, clock: FakeClock
) -> None:
    old, taker, unit = new_claim(), new_claim(), store.unit()
    await unit.run(acquire(old))
    clock.advance(LEASE)
    await store.run(acquire(taker))
    await pay(unit, "paid twice")

    with pytest.raises(ClaimLostError):
        await settle(unit, old)
    assert unit.begun
    assert not unit.escaped
    await unit.close()
    assert await store.run(put_in_doubt(held(old))) is False
    assert await store.run(renew([(held(old), LEASE), (held(taker), LEASE)])) == {old.owner}
    assert await effects(store) == []


@pytest.mark.rule("A4")
async def test_many_leases_are_renewed_in_one_statement(
    store: AsyncStore, clock: FakeClock
) -> None:
    claims = [new_claim(f"key {n}", lease=LEASE + n) for n in range(3)]
    for new in claims:
        await store.run(acquire(new))
    clock.advance(LEASE / 2)
    assert await store.run(renew([(held(new), new.lease) for new in claims])) == set()
    for new in claims:
        found = await store.run(look(new.identity))
        assert found is not None
        assert found.lease_expires_at == clock() + new.lease


@pytest.mark.rule("A4")
async def test_a_link_renews_while_the_event_loop_is_blocked(store: AsyncStore) -> None:
    new, lost = new_claim(), list[set[bytes]]()
    await store.run(acquire(new))

    def beat() -> None:
        with store.link() as link:
            lost.append(pump(link, renew([(held(new), 2 * LEASE)])))

    thread = threading.Thread(target=beat)
    thread.start()
    thread.join()

    assert lost == [set()]
    found = await store.run(look(new.identity))
    assert found is not None
    assert found.lease_expires_at == found.now + 2 * LEASE


async def test_a_renewal_does_not_wait_long_for_an_open_effect(tmp_path: Path) -> None:
    store = AsyncStore(tmp_path / "shop.db", busy_timeout=0.05)
    await store.migrate()
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new))
    await unit.tx.execute("SELECT 1")
    with store.link() as link, pytest.raises(StoreConflictError):
        pump(link, renew([(held(new), LEASE)]))
    await unit.close()
    await store.aclose()


@pytest.mark.rule("A7")
async def test_our_own_row_is_recognised(store: AsyncStore) -> None:
    new = new_claim()
    await store.run(acquire(new))
    assert await store.run(acquire(new)) == Execute(token=1)


@pytest.mark.rule("X1")
async def test_a_settled_claim_expires_at_its_exact_moment(
    store: AsyncStore, clock: FakeClock
) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new))
    await settle(unit, new)
    clock.advance(RETENTION - 1)
    assert await store.run(acquire(new_claim())) == Replay(ANSWER)
    clock.advance(1)
    assert await store.run(acquire(new_claim(body="two"))) == Execute(token=2)


@pytest.mark.rule("X2", "A5")
async def test_purge_takes_what_is_absent_and_old_and_no_more_than_asked(
    store: AsyncStore, clock: FakeClock
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
    listed = await store.run(list_claims(10))
    assert [claim.key for claim in listed] == [running.identity.key, doubtful.identity.key]
    assert [claim.status for claim in listed] == [Status.IN_PROGRESS, Status.IN_DOUBT]
    assert listed[1].expires_at == math.inf
    assert await store.run(acquire(new_claim("doubt"))) == InDoubt()


async def test_what_was_stored_comes_back_as_it_was(store: AsyncStore, clock: FakeClock) -> None:
    new, unit = new_claim(), store.unit()
    await unit.run(acquire(new))
    await settle(unit, new)
    found = await store.run(look(new.identity))
    assert found is not None
    assert (found.digest, found.raw, found.recipe) == (
        new.request.digest,
        new.request.raw,
        new.request.recipe,
    )
    assert (found.owner, found.token, found.now) == (new.owner, 1, clock())
    assert (found.answer, found.expires_at) == (ANSWER, clock() + RETENTION)
    (listed,) = await store.run(list_claims(10))
    assert (listed.answer_status, listed.answer_bytes) == (201, len(ANSWER.body or b""))


async def test_without_a_test_clock_the_database_tells_the_time(tmp_path: Path) -> None:
    store = AsyncStore(tmp_path / "shop.db")
    await store.migrate()
    new = new_claim()
    await store.run(acquire(new))
    found = await store.run(look(new.identity))
    async with store.connection() as connection:
        ((after,),) = await connection.execute("SELECT CAST(strftime('%s', 'now') AS REAL)")
    await store.aclose()
    assert found is not None
    assert after - 60 < found.now < after + 1
    assert found.lease_expires_at is not None
    assert LEASE - 60 < found.lease_expires_at - found.now <= LEASE


@pytest.mark.rule("A1")
async def test_of_fifty_tasks_and_two_stores_one_executes(store: AsyncStore) -> None:
    other = AsyncStore(store.path)
    stores = [store, other] * 25
    decisions = await asyncio.gather(*(one.run(acquire(new_claim())) for one in stores))
    await other.aclose()
    assert sum(isinstance(decision, Execute) for decision in decisions) == 1
    assert sum(isinstance(decision, InFlight) for decision in decisions) == 49


@pytest.mark.rule("A6")
async def test_every_commit_reaches_the_disk(store: AsyncStore) -> None:
    async with store.connection() as connection:
        assert await connection.execute("PRAGMA journal_mode") == [("wal",)]
        assert await connection.execute("PRAGMA synchronous") == [(2,)]
