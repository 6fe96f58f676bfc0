"""Group: effect, claim and answer stand and fall together (rules A2, O2, O5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from semel.core.model import Answer, Decision, Execute, InFlight, Mode, NewClaim, Replay, Status
from semel.errors import ClaimClosedError, StoreError
from semel.store import programs
from semel.testing.conformance.group import Bench, Group, requires
from semel.testing.driving import ANSWER, Attempt


class Transactions(Group):
    """The transaction that a handler's effects are in."""

    @pytest.mark.rule("A2", "O4")
    async def test_effect_and_answer_appear_together(self, bench: Bench, mode: Mode) -> None:
        """Nobody sees either of them before the commit."""
        attempt = await bench.held(bench.claim(mode=mode))
        await bench.write(attempt, "paid")
        assert await bench.effects() == []
        assert await _status(bench, attempt) is (
            None if mode is Mode.ATOMIC else Status.IN_PROGRESS
        )

        await attempt.settle()
        assert await bench.effects() == ["paid"]
        assert await _status(bench, attempt) is Status.COMPLETED

    @pytest.mark.rule("A2")
    async def test_no_moment_lies_between_effect_and_answer(self, bench: Bench, mode: Mode) -> None:
        """Whoever sees the one and looks then for the other finds it."""
        keys = [f"key-{number}" for number in range(30)]
        done = asyncio.Event()

        async def pay() -> None:
            for key in keys:
                await bench.completed(bench.claim(key, mode=mode), effect=key)
            done.set()

        async def watch() -> None:
            while not done.is_set():
                effects = await bench.effects()
                rows = await bench.dump()
                completed = {
                    row.listed.key for row in rows if row.listed.status is Status.COMPLETED
                }
                later = await bench.effects()
                keys_of = {key: bench.claim(key, mode=mode).identity.key for key in keys}
                assert {keys_of[effect] for effect in effects} <= completed
                assert completed <= {keys_of[effect] for effect in later}

        await asyncio.gather(pay(), watch())
        assert len(await bench.effects()) == len(keys)

    @pytest.mark.rule("A2", "O5")
    @pytest.mark.parametrize("how", ["roll back", "close"])
    async def test_what_is_not_settled_had_no_effect(
        self, bench: Bench, mode: Mode, how: str
    ) -> None:
        """In atomic mode the claim goes with the effect; in joined mode it is still held."""
        attempt = await bench.held(bench.claim(mode=mode))
        await bench.write(attempt, "undone")
        if how == "roll back":
            await attempt.unit.run(programs.abandon(begun=attempt.unit.begun))
        await attempt.close()
        await attempt.close()

        assert await bench.effects() == []
        again = await bench.ask(bench.claim(mode=mode))
        if mode is Mode.ATOMIC:
            assert again == Execute(token=1)
        else:
            assert isinstance(again, InFlight)
            assert await bench.store.run(programs.release(attempt.held))
            assert await bench.ask(bench.claim(mode=mode)) == Execute(token=2)

    @pytest.mark.rule("O2")
    async def test_an_undone_effect_can_be_told_from_a_kept_one(
        self, bench: Bench, mode: Mode
    ) -> None:
        """The answer alone is committed, and later work on other keys is not touched."""
        attempt = await bench.held(bench.claim("refused", mode=mode))
        await bench.write(attempt, "undone")
        await attempt.settle(Answer(422, (), b"no"), undo=True)
        await bench.completed(bench.claim("accepted", mode=mode), effect="paid")
        assert await bench.effects() == ["paid"]

    @pytest.mark.rule("O2")
    async def test_a_swallowed_error_commits_all_or_nothing(self, bench: Bench, mode: Mode) -> None:
        """A handler that hides its database's error gets no answer that is not true."""
        attempt = await bench.held(bench.claim(mode=mode))
        await bench.write(attempt, "before")
        await _swallow_an_error(bench, attempt)
        try:
            await attempt.settle()
        except StoreError:
            assert await bench.effects() == []
            assert await _status(bench, attempt) is not Status.COMPLETED
        else:  # a statement that fails does not spoil this database's transaction
            assert await bench.effects() == ["before"]
            assert await bench.ask(bench.claim(mode=mode)) == Replay(ANSWER)

    @pytest.mark.rule("O2")
    async def test_a_swallowed_error_can_be_undone(self, bench: Bench, mode: Mode) -> None:
        """A refusal is stored even where the handler spoiled its transaction."""
        attempt = await bench.held(bench.claim(mode=mode))
        await bench.write(attempt, "undone")
        await _swallow_an_error(bench, attempt)
        refusal = Answer(409, (), b"sold out")
        await attempt.settle(refusal, undo=True)
        assert await bench.effects() == []
        assert await bench.ask(bench.claim(mode=mode)) == Replay(refusal)

    @pytest.mark.rule("A2")
    async def test_a_unit_knows_whether_its_transaction_is_open(
        self, bench: Bench, mode: Mode
    ) -> None:
        """It asks the database, and calls nothing an escape that is none."""
        attempt = bench.attempt(bench.claim(mode=mode))
        unit = attempt.unit
        assert (unit.begun, unit.escaped) == (False, False)
        await attempt.acquire()
        assert (unit.begun, unit.escaped) == (mode is Mode.ATOMIC, False)
        await bench.write(attempt, "paid")
        assert (unit.begun, unit.escaped) == (True, False)
        await unit.run(attempt.settling())
        assert (unit.begun, unit.escaped) == (False, False)
        await unit.close()
        assert (unit.begun, unit.escaped) == (False, False)

    @pytest.mark.rule("O7")
    async def test_a_closed_unit_does_nothing_more(self, bench: Bench, mode: Mode) -> None:
        """Neither the application nor a program reaches the database through it."""
        attempt = await bench.held(bench.claim(mode=mode))
        await bench.write(attempt, "paid")
        await attempt.settle()
        with pytest.raises(ClaimClosedError):
            await bench.harness.write_effect(attempt.unit.tx, "late")
        with pytest.raises(ClaimClosedError):
            await attempt.unit.run(programs.look(attempt.new.identity))
        assert await bench.effects() == ["paid"]

    @pytest.mark.rule("O5")
    async def test_a_cancelled_handler_leaves_nothing(self, bench: Bench, mode: Mode) -> None:
        """More often than there are connections: each comes back, and clean."""
        for number in range(24):
            attempt = await bench.held(bench.claim(f"{number}", mode=mode))
            await bench.write(attempt, f"undone {number}")
            task = asyncio.create_task(_hang(attempt))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await bench.effects() == []
        await bench.completed(bench.claim("next", mode=mode), effect="paid")
        assert await bench.effects() == ["paid"]

    @pytest.mark.rule("O5", "A7")
    async def test_a_cancelled_acquire_keeps_no_connection(self, bench: Bench, mode: Mode) -> None:
        """Wherever it is cut short, the same owner may try again and no other is let in."""
        for turns in range(24):
            new = bench.claim(f"{turns}", mode=mode)
            attempt = bench.attempt(new)
            task = asyncio.create_task(attempt.acquire())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await attempt.close()

            # A driver that closes the connection is sooner done than its server.
            again, decision = await _eventually(bench, new)
            assert decision == Execute(token=1)
            rival = await bench.ask(bench.claim(f"{turns}", mode=mode))
            assert isinstance(rival, InFlight)
            await bench.write(again, f"paid {turns}")
            await again.settle()
        assert len(await bench.effects()) == 24

    @pytest.mark.rule("A2")
    @requires("concurrent")
    async def test_open_claims_do_not_hold_each_other_up(self, bench: Bench, mode: Mode) -> None:
        """Several handlers of one process have their transactions open at once."""
        attempts = [await bench.held(bench.claim(f"{n}", mode=mode)) for n in range(4)]
        for number, attempt in enumerate(attempts):
            await bench.write(attempt, f"paid {number}")
        for attempt in reversed(attempts):
            await attempt.settle()
        assert len(await bench.effects()) == 4


async def _status(bench: Bench, attempt: Attempt[object]) -> Status | None:
    found = await bench.look(attempt.new.identity)
    return None if found is None else found.status


async def _swallow_an_error(bench: Bench, attempt: Attempt[object]) -> None:
    """Let a statement fail as a database's does, whatever its driver raises."""
    try:
        await bench.harness.fail(attempt.unit.tx)
    except (AttributeError, NameError, NotImplementedError, TypeError):
        raise  # the harness is wrong
    except Exception:  # noqa: BLE001 - each driver has its own
        return
    raise AssertionError("the statement was to fail")


async def _hang(attempt: Attempt[object]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await attempt.close()


async def _eventually(bench: Bench, new: NewClaim) -> tuple[Attempt[Any], Decision]:
    """Try until nobody else is in flight, for 20 seconds at most."""
    async with asyncio.timeout(20):
        while True:
            attempt = bench.attempt(new)
            decision = await attempt.acquire()
            if not isinstance(decision, InFlight):
                return attempt, decision
            await asyncio.sleep(0.01)
