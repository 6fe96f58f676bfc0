"""Group: of all who ask for one key at the same time, one runs the handler (rule A1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from semel.core.model import Execute, InFlight, Mode, Replay
from semel.store import programs
from semel.testing.conformance import racing
from semel.testing.conformance.group import Bench, Group, requires
from semel.testing.conformance.harness import Harness
from semel.testing.driving import ANSWER, LEASE, RETENTION, Attempt, is_refusal

RACERS = 8


class Contention(Group):
    """Handlers are counted, not rows."""

    @pytest.mark.rule("A1")
    async def test_of_many_tasks_one_runs(self, bench: Bench, mode: Mode) -> None:
        """All tasks of a process share one store and its connections."""
        keys = [f"key-{number}" for number in range(30)]
        finishes = await racing.by_tasks(bench.store, bench.harness, mode, keys, racers=12)
        racing.judge(finishes, keys, 12)
        await _all_paid(bench, mode, keys)

    @pytest.mark.rule("A1")
    async def test_of_many_threads_one_runs(
        self, bench: Bench, harness: Harness[Any], mode: Mode
    ) -> None:
        """Each thread has an event loop and a store of its own."""
        keys = [f"key-{number}" for number in range(25)]
        finishes = await asyncio.to_thread(racing.by_threads, harness, mode, keys, 4)
        racing.judge(finishes, keys, 4)
        await _all_paid(bench, mode, keys)

    @pytest.mark.rule("A1")
    @requires("processes")
    async def test_of_many_processes_one_runs(
        self, bench: Bench, harness: Harness[Any], mode: Mode
    ) -> None:
        """The processes share nothing but the store."""
        keys = [f"key-{number}" for number in range(25)]
        finishes = await asyncio.to_thread(racing.by_processes, harness, mode, keys, 4)
        racing.judge(finishes, keys, 4)
        await _all_paid(bench, mode, keys)

    @pytest.mark.rule("A1")
    async def test_everybody_is_answered_while_the_winner_runs(
        self, bench: Bench, mode: Mode
    ) -> None:
        """Losers need not wait for the handler to learn that they lost."""
        winner = await bench.held(bench.claim(mode=mode))
        for decision in await racing.ask_together(_rivals(bench, mode)):
            assert isinstance(decision, InFlight)
        await bench.write(winner, "paid")
        await winner.settle()
        assert await bench.ask(bench.claim(mode=mode)) == Replay(ANSWER)
        assert await bench.effects() == ["paid"]

    @pytest.mark.rule("A3", "A6")
    async def test_unrelated_keys_do_not_collide(self, bench: Bench, mode: Mode) -> None:
        """Many requests at once, each with a key of its own: none is aborted after its handler."""
        names = [f"task-{number}" for number in range(12)]

        async def pay(name: str) -> None:
            for number in range(15):
                attempt = bench.attempt(bench.claim(f"{name} {number}", mode=mode))
                assert await attempt.acquire_patiently() == Execute(token=1)
                await bench.write(attempt, f"{name} {number}")
                await attempt.settle()

        await asyncio.gather(*(pay(name) for name in names))
        assert len(await bench.effects()) == len(names) * 15

    @pytest.mark.rule("A8")
    async def test_a_rolled_back_winner_makes_room_for_the_next(
        self, bench: Bench, mode: Mode
    ) -> None:
        """Round by round one of those who are left runs: none is lost, none runs beside it."""
        for number in range(3):
            winner = await _only_winner(bench, mode)
            await bench.write(winner, f"undone {number}")
            await winner.roll_back()
        winner = await _only_winner(bench, mode)
        await bench.write(winner, "paid")
        await winner.settle()

        for decision in await racing.ask_together(_rivals(bench, mode)):
            assert decision == Replay(ANSWER)
        assert await bench.effects() == ["paid"]

    @pytest.mark.rule("A1", "X1")
    @requires("clock_can_be_set")
    async def test_one_of_many_gets_an_expired_key(self, timed: Bench, mode: Mode) -> None:
        """The old row does not let a second one in."""
        for number in range(10):
            await timed.completed(timed.claim(mode=mode))
            timed.clock.advance(RETENTION)
            winner = await _only_winner(timed, mode)
            await timed.write(winner, f"paid {number}")
            await winner.settle()
            timed.clock.advance(RETENTION)
        assert len(await timed.effects()) == 10

    @pytest.mark.rule("A1", "A4")
    @requires("joined", "clock_can_be_set")
    async def test_one_of_many_takes_an_abandoned_claim_over(self, timed: Bench) -> None:
        """The others see the new lease."""
        for number in range(10):
            key = f"key-{number}"
            abandoned = await timed.held(timed.claim(key, mode=Mode.JOINED))
            await abandoned.close()
            timed.clock.advance(LEASE)
            winner = await _only_winner(timed, Mode.JOINED, key)
            found = await timed.found(winner.new.identity)
            assert (found.owner, found.token) == (winner.new.owner, 2)
            await winner.settle()

    @pytest.mark.rule("A1", "A4")
    @requires("joined")
    async def test_one_of_many_gets_a_released_claim(self, bench: Bench, mode: Mode) -> None:
        """A claim that was given back is given to one."""
        for number in range(10):
            key = f"key-{number}"
            first = await bench.held(bench.claim(key, mode=Mode.JOINED))
            await bench.store.run(programs.release(first.held))
            await first.close()
            winner = await _only_winner(bench, mode, key)
            await winner.settle()


def _rivals(bench: Bench, mode: Mode, key: str = "key") -> list[Attempt[Any]]:
    return [bench.attempt(bench.claim(key, mode=mode)) for _ in range(RACERS)]


async def _only_winner(bench: Bench, mode: Mode, key: str = "key") -> Attempt[Any]:
    """Let rivals ask together; return the one that may run, before it ran."""
    rivals = _rivals(bench, mode, key)
    decisions = await racing.ask_together(rivals)
    winners = [
        rival
        for rival, decision in zip(rivals, decisions, strict=True)
        if isinstance(decision, Execute)
    ]
    assert len(winners) == 1
    assert sum(is_refusal(decision) for decision in decisions) == RACERS - 1
    return winners[0]


async def _all_paid(bench: Bench, mode: Mode, keys: list[str]) -> None:
    assert await bench.effects() == sorted(keys)
    for key in keys:
        assert await bench.ask(bench.claim(key, mode=mode)) == Replay(ANSWER)
