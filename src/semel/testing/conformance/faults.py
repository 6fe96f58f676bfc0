"""Group: an error before or after any single statement leaves nothing or everything.

Rules A6 (a conflict before the handler starts again, after it never) and A7 (a
claim whose answer got lost is recognised by its owner).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from semel.core.model import Execute, Found, InFlight, Mode, Replay, Status
from semel.errors import StoreConflictError, StoreUnavailableError
from semel.store import programs
from semel.store.statement import Rows, Statement, Steps
from semel.testing.conformance.group import Bench, Group, requires
from semel.testing.conformance.injection import Fault, faults
from semel.testing.driving import ANSWER, LEASE, RETENTION, Attempt, T, wrapped

SITUATIONS = ("fresh", "released", "expired", "abandoned")


class Faults(Group):
    """Each test goes through all statements of a program."""

    @pytest.mark.rule("A7")
    @pytest.mark.parametrize("situation", SITUATIONS)
    @requires("clock_can_be_set")
    async def test_a_lost_acquire_is_resolved_by_its_owner(
        self, timed: Bench, mode: Mode, situation: str
    ) -> None:
        """The key is as it was, or ours; the same owner goes on, and nobody else meanwhile."""
        _skip_unless_joined(self, situation)
        for number, fault in enumerate(faults()):
            key = f"{situation}-{number}"
            token = await _put(timed, situation, mode, key)
            new = timed.claim(key, mode=mode)
            before = await timed.row(new.identity)
            attempt = timed.attempt(new)
            await _strike(fault, attempt.acquire(fault))
            await attempt.close()

            row = await timed.row(new.identity)
            if row != before:
                assert mode is Mode.JOINED
                assert row is not None
                assert (row.found.owner, row.found.status) == (new.owner, Status.IN_PROGRESS)
            again = timed.attempt(new)
            decision = await again.acquire()
            assert isinstance(decision, Execute)
            assert decision.token == token
            assert isinstance(await timed.ask(timed.claim(key, mode=mode)), InFlight)
            await timed.write(again, key)
            await again.settle()
            assert (await timed.effects()).count(key) == 1

    @pytest.mark.rule("A6")
    @pytest.mark.parametrize("situation", SITUATIONS)
    @requires("clock_can_be_set")
    async def test_a_conflict_before_the_handler_starts_again(
        self, timed: Bench, mode: Mode, situation: str
    ) -> None:
        """The request does not notice, and its token is the one it would have had."""
        _skip_unless_joined(self, situation)
        for number, fault in enumerate(faults("conflict")):
            key = f"{situation}-{number}"
            token = await _put(timed, situation, mode, key)
            attempt = timed.attempt(timed.claim(key, mode=mode))
            decision = await attempt.acquire_patiently(fault)
            assert isinstance(decision, Execute)
            assert decision.token == token
            await timed.write(attempt, key)
            await attempt.settle()
            assert (await timed.effects()).count(key) == 1
            assert await timed.ask(timed.claim(key, mode=mode)) == Replay(ANSWER)

    @pytest.mark.rule("A6")
    async def test_endless_conflicts_end_in_an_error(self, bench: Bench, mode: Mode) -> None:
        """Nothing is held then, and the next request is served."""

        def never(steps: Steps[T], /) -> Steps[T]:
            return wrapped(steps, _refuse)

        attempt = bench.attempt(bench.claim(mode=mode))
        with pytest.raises((StoreUnavailableError, StoreConflictError)):
            await attempt.acquire_patiently(never)
        assert await bench.dump() == []
        await bench.completed(bench.claim(mode=mode))

    @pytest.mark.rule("A2", "A6", "O4")
    @pytest.mark.parametrize("undo", [False, True])
    async def test_a_lost_settlement_is_whole_or_nothing(
        self, bench: Bench, mode: Mode, *, undo: bool
    ) -> None:
        """Effect and answer are both there or both not, whichever statement was hit."""
        outcomes = set()
        for number, fault in enumerate(faults()):
            new = bench.claim(f"{number}", mode=mode)
            attempt = await bench.held(new)
            await bench.write(attempt, f"{number}")
            await _strike(fault, attempt.settle(undo=undo, wrap=fault))

            found = await bench.look(new.identity)
            completed = found is not None and found.status is Status.COMPLETED
            assert (f"{number}" in await bench.effects()) == (completed and not undo)
            again = await bench.ask(bench.claim(f"{number}", mode=mode))
            assert isinstance(again, Replay) == completed
            if not completed and mode is Mode.JOINED:
                assert await bench.store.run(programs.release(attempt.held))
            if fault.raised:
                outcomes.add((fault.struck, fault.when, completed))
        assert ("commit", "before", False) in outcomes
        assert ("commit", "after", True) in outcomes

    @pytest.mark.rule("A6")
    async def test_a_conflict_after_the_handler_commits_nothing(
        self, bench: Bench, mode: Mode
    ) -> None:
        """The settlement is not tried again by itself: the handler's effects are gone."""
        for number, fault in enumerate(faults("conflict", is_open=True)):
            attempt = await bench.held(bench.claim(f"{number}", mode=mode))
            await bench.write(attempt, f"{number}")
            await _strike(fault, attempt.settle(wrap=fault), StoreConflictError)
            assert sum(name.startswith("claim_complete") for name in fault.seen) <= 1
            assert (f"{number}" in await bench.effects()) == (not fault.raised)

    @pytest.mark.rule("A7")
    @pytest.mark.parametrize("operation", ["release", "put_in_doubt", "renew"])
    @requires("joined", "clock_can_be_set")
    async def test_other_operations_are_whole_or_nothing(
        self, timed: Bench, operation: str
    ) -> None:
        """An operator's or a heartbeat's lost answer leaves no half-changed row."""
        plain = await timed.held(timed.claim("plain", mode=Mode.JOINED))
        untouched = await timed.row(plain.new.identity)
        await timed.store.run(_operation(operation, plain))
        changed = await timed.row(plain.new.identity)
        assert untouched is not None
        assert changed is not None
        states = {_state(untouched.found), _state(changed.found)}
        assert len(states) == (1 if operation == "renew" else 2)

        for number, fault in enumerate(faults()):
            attempt = await timed.held(timed.claim(f"{number}", mode=Mode.JOINED))
            await _strike(fault, timed.store.run(fault(_operation(operation, attempt))))
            found = await timed.found(attempt.new.identity)
            assert _state(found) in states
            await attempt.close()

    @pytest.mark.rule("X2")
    @requires("clock_can_be_set")
    async def test_a_lost_purge_deletes_a_whole_batch_or_nothing(
        self, timed: Bench, mode: Mode
    ) -> None:
        """What is left is purged by the next one."""
        for number, fault in enumerate(faults()):
            for index in range(3):
                await timed.completed(timed.claim(f"{number}-{index}", mode=mode))
            timed.clock.advance(RETENTION)
            await _strike(fault, timed.store.run(fault(programs.purge(2))))
            assert len(await timed.dump()) in {1, 3}
            await timed.store.run(programs.purge(10))
            assert await timed.dump() == []


def _skip_unless_joined(group: Group, situation: str) -> None:
    if situation in {"released", "abandoned"} and not group.capabilities.joined:
        pytest.skip("there are no such claims without mode joined")


async def _put(bench: Bench, situation: str, mode: Mode, key: str) -> int:
    """Bring a key into a situation in which it is to be had; return the next token."""
    match situation:
        case "fresh":
            return 1
        case "released":
            await (await bench.held(bench.claim(key, mode=Mode.JOINED))).roll_back()
        case "expired":
            await bench.completed(bench.claim(key, mode=mode))
            bench.clock.advance(RETENTION)
        case "abandoned":
            await (await bench.held(bench.claim(key, mode=Mode.JOINED))).close()
            bench.clock.advance(LEASE)
    return 2


async def _strike(
    fault: Fault,
    work: Awaitable[object],
    error: type[Exception] = StoreUnavailableError,
) -> None:
    """Do some work, which has to fail exactly if the fault was in its way."""
    try:
        await work
    except error:
        assert fault.raised
    else:
        assert not fault.raised


def _refuse(statement: Statement) -> Steps[Rows]:
    if statement.name.startswith(("claim", "script")):
        raise StoreConflictError("injected: aborted for another transaction's sake")
    return (yield statement)


def _operation(name: str, attempt: Attempt[Any]) -> Steps[Any]:
    match name:
        case "release":
            return programs.release(attempt.held)
        case "put_in_doubt":
            return programs.put_in_doubt(attempt.held)
        case _:
            return programs.renew([(attempt.held, LEASE)])


def _state(found: Found) -> tuple[Any, ...]:
    return (found.status, found.token, found.lease_expires_at, found.expires_at)
