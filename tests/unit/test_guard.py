"""The guard on the memory store: options, what is remembered, what work is shielded."""

from __future__ import annotations

import asyncio

import pytest

from semel import memory
from semel.claim import AsyncClaim
from semel.core.fingerprint import RequestImage
from semel.core.identity import SHARED, identify
from semel.core.model import Answer, InFlight, Mode, Replay, Status
from semel.core.options import Options
from semel.errors import ClaimClosedError, ScopeMissingError, UsageError
from semel.guard import AsyncGuard, current
from semel.remembered import Remembered

Guard = AsyncGuard[memory.MemoryTx]
IMAGE = RequestImage("POST", "/pay", b"", (), b"500")
PAID = Answer(201, (), b"paid")


async def claim_of(guard: Guard, key: str = "k") -> AsyncClaim[memory.MemoryTx]:
    claim = await guard.acquire("shop", key, guard.fingerprint(IMAGE))
    assert isinstance(claim, AsyncClaim)
    return claim


@pytest.mark.rule("A2")
def test_a_mode_that_the_store_can_not_do_is_refused() -> None:
    with pytest.raises(UsageError, match="leased; it supports: joined, atomic"):
        AsyncGuard(memory.AsyncStore(), Options(mode=Mode.LEASED))


@pytest.mark.rule("K3")
def test_options_that_can_not_keep_the_promise_are_refused() -> None:
    with pytest.raises(UsageError, match="retention"):
        Options(retention=0)
    with pytest.raises(UsageError, match="lease"):
        Options(lease=float("inf"))
    with pytest.raises(UsageError, match="GET must have no effect"):
        Options(methods=frozenset({"POST", "GET"}))


def test_outside_a_claim_there_is_none() -> None:
    guard = AsyncGuard(memory.AsyncStore())
    assert current() is None
    with pytest.raises(UsageError, match="is the route guarded"):
        guard.current()


@pytest.mark.rule("K4")
async def test_a_scope_is_never_optional() -> None:
    async with AsyncGuard(memory.AsyncStore()) as guard:
        with pytest.raises(ScopeMissingError):
            await guard.acquire("", "k", guard.fingerprint(IMAGE))
        shared = await guard.acquire(SHARED, "k", guard.fingerprint(IMAGE))
        assert isinstance(shared, AsyncClaim)
        assert isinstance(await claim_of(guard), AsyncClaim)  # another scope, another claim


@pytest.mark.rule("F6")
async def test_the_same_request_under_two_keys_runs_twice() -> None:
    async with AsyncGuard(memory.AsyncStore()) as guard:
        for key in ("one", "two"):
            await (await claim_of(guard, key)).complete(PAID)


@pytest.mark.rule("O6")
async def test_a_claim_is_settled_once() -> None:
    async with AsyncGuard(memory.AsyncStore()) as guard:
        claim = await claim_of(guard)
        await claim.complete(PAID)
        with pytest.raises(ClaimClosedError):
            await claim.complete(PAID)
        with pytest.raises(ClaimClosedError):
            claim.after_commit(lambda: None)
        await claim.release()  # nothing left to do
        assert await guard.acquire("shop", "k", guard.fingerprint(IMAGE)) == Replay(PAID)


@pytest.mark.rule("O4")
async def test_work_after_the_commit_runs_once_and_after_a_success_only() -> None:
    done: list[str] = []

    async def later() -> None:
        done.append("async")

    async with AsyncGuard(memory.AsyncStore()) as guard:
        claim = await claim_of(guard)
        claim.after_commit(lambda: done.append("first"))
        claim.after_commit(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        claim.after_commit(later)
        await claim.complete(PAID)
        await claim.run_after_commit()
        await claim.run_after_commit()
        assert done == ["first", "async"]
        for status in (402, 500):
            failing = await claim_of(guard, f"k{status}")
            failing.after_commit(lambda: done.append("never"))
            await failing.complete(Answer(status))
            await failing.run_after_commit()
    assert done == ["first", "async"]


async def test_a_guard_for_a_route_shares_store_and_memory() -> None:
    async with AsyncGuard(memory.AsyncStore()) as guard:
        route = guard.with_options(mode=Mode.ATOMIC, retention=5.0)
        assert (route.mode, guard.mode) == (Mode.ATOMIC, Mode.JOINED)
        await (await claim_of(route)).complete(PAID)
        assert identify("shop", "k") in guard._remembered
        assert await guard.acquire("shop", "k", guard.fingerprint(IMAGE)) == Replay(PAID)


@pytest.mark.rule("A3")
def test_only_so_many_keys_are_remembered() -> None:
    remembered = Remembered(2)
    one, two, three = (identify("shop", key) for key in ("1", "2", "3"))
    for identity in (one, two, one, three):
        remembered.add(identity)
    assert (one in remembered, two in remembered, three in remembered) == (True, False, True)
    remembered.forget(one)
    remembered.forget(one)
    assert len(remembered) == 1
    nothing = Remembered(0)
    nothing.add(one)
    assert len(nothing) == 0


@pytest.mark.rule("O5", "A4")
async def test_an_acquire_that_is_cancelled_leaves_a_free_key() -> None:
    store = memory.AsyncStore(interleave=True)
    async with AsyncGuard(store) as guard:
        for turns in range(12):
            task = asyncio.ensure_future(claim_of(guard, f"k{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                claim = await task
            except asyncio.CancelledError:
                claim = await claim_of(guard, f"k{turns}")
            await claim.complete(PAID)


@pytest.mark.rule("A1")
async def test_one_of_many_runs() -> None:
    for mode in (Mode.ATOMIC, Mode.JOINED):
        async with AsyncGuard(memory.AsyncStore(interleave=True), Options(mode=mode)) as guard:
            requests = (guard.acquire("shop", "k", guard.fingerprint(IMAGE)) for _ in range(50))
            decisions = await asyncio.gather(*requests)
            claims = [one for one in decisions if isinstance(one, AsyncClaim)]
            assert len(claims) == 1
            assert sum(isinstance(one, InFlight) for one in decisions) == 49
            await claims[0].complete(PAID)


@pytest.mark.rule("O6", "O5")
async def test_closing_waits_for_a_claim_that_a_cancelled_request_gives_back() -> None:
    store = memory.AsyncStore(interleave=True)
    guard = AsyncGuard(store)

    running = asyncio.Event()

    async def handler() -> None:
        claim = await claim_of(guard)
        try:
            running.set()
            await asyncio.Event().wait()
        finally:
            await claim.release()

    task = asyncio.ensure_future(handler())
    await running.wait()
    task.cancel()  # as a server does that is told to end, and shuts down at once
    await guard.aclose()
    (found,) = store.database.rows.values()
    assert found.status is Status.RELEASED
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_closing_does_not_wait_for_ever() -> None:
    guard = AsyncGuard(memory.AsyncStore())
    await claim_of(guard)  # and nobody settles it
    await guard.aclose()
    assert len(guard._unsettled) == 1
