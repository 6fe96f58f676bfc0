"""Group: the store does what the memory store does, step by step (rule Q2).

Hypothesis draws the operations of several owners on a few keys, and how time
goes by. After every step both stores have to hold the same claims and effects.

All times are whole seconds, so that operations often meet the exact end of a
lease or a retention. A joined operation on a key whose row an open atomic claim
has locked would wait in a database, so it is not drawn.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from semel.core.model import Answer, Execute, Mode, NewClaim
from semel.errors import SemelError
from semel.memory import MemoryTx
from semel.store import programs
from semel.store.statement import Steps
from semel.store.tables import Tables
from semel.testing.clock import FakeClock
from semel.testing.conformance.group import Group, requires
from semel.testing.conformance.harness import Harness, Workbench
from semel.testing.conformance.model import MemoryHarness
from semel.testing.driving import Attempt

T = TypeVar("T")

KEYS = ("a", "b")
BODIES = ("one", "two")
LEASES = (2.0, 5.0)
RETENTIONS = (3.0, 60.0)
MOMENTS = ("now", "lease_expires_at", "expires_at")
PAUSES = (0, 0, 0, 1, 2, 5, 60)
# Each open atomic claim holds a connection.
MOST_OPEN = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """The same attempt on both stores."""

    key: str
    body: str
    new: NewClaim
    tested: Attempt[Any]
    model: Attempt[MemoryTx]

    @property
    def is_atomic(self) -> bool:
        """Whether it holds a transaction open from the acquire on."""
        return self.new.mode is Mode.ATOMIC


class Machine(RuleBasedStateMachine):
    """Runs everything twice and compares."""

    numbers = itertools.count()

    def __init__(self, harness: Harness[Any], modes: tuple[Mode, ...]) -> None:
        """Make two empty stores with one clock."""
        super().__init__()
        self.number = next(self.numbers)
        self.modes = modes
        self.clock = FakeClock()
        self.held: list[Pair] = []
        self.owners = itertools.count(1)
        self.runner = asyncio.Runner()
        tables = Tables(prefix=f"d{self.number}_")
        self.tested = Workbench(harness, self.clock, tables)
        self.model = Workbench(MemoryHarness(), self.clock, tables)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work in the machine's event loop."""
        return self.runner.run(work)

    def teardown(self) -> None:
        """Roll back and close."""
        self.run(self._close())
        self.runner.close()

    async def _close(self) -> None:
        await self.tested.aclose()
        await self.model.aclose()

    @initialize()
    def open(self) -> None:
        """Make the tables."""
        self.run(self.tested.open())
        self.run(self.model.open())

    @rule(key=st.sampled_from(KEYS), body=st.sampled_from(BODIES), data=st.data())
    def acquire(self, key: str, body: str, data: st.DataObject) -> None:
        """Let a new owner ask for a key."""
        self._acquire(key, body, data)

    @precondition(lambda self: self.held)
    @rule(when=st.sampled_from(MOMENTS), same=st.booleans(), data=st.data())
    def retry(self, when: str, data: st.DataObject, *, same: bool) -> None:
        """Let one more owner ask for what somebody had, at a moment that matters."""
        pair = data.draw(st.sampled_from(self.held), "attempt")
        found = self.run(self.model.look(pair.new.identity))
        end = None if found is None or when == "now" else getattr(found, when)
        if end is not None and self.clock() < end < math.inf:
            self.clock.advance(end - self.clock())
        self._acquire(pair.key, pair.body if same else "other", data)

    def _acquire(self, key: str, body: str, data: st.DataObject) -> None:
        new = self.tested.claim(
            key,
            body,
            mode=data.draw(st.sampled_from(self._modes_for(key)), "mode"),
            lease=data.draw(st.sampled_from(LEASES), "lease"),
            retention=data.draw(st.sampled_from(RETENTIONS), "retention"),
            owner=next(self.owners).to_bytes(16, "big"),
        )
        pair = Pair(key, body, new, self.tested.attempt(new), self.model.attempt(new))
        decision = self._same(pair.tested.acquire(), pair.model.acquire())
        if isinstance(decision, Execute):
            self.held.append(pair)

    def _modes_for(self, key: str) -> list[Mode]:
        if any(pair.is_atomic and pair.key == key for pair in self.held):
            return [Mode.ATOMIC]
        can_open = sum(pair.is_atomic for pair in self.held) < MOST_OPEN
        return [mode for mode in self.modes if can_open or mode is not Mode.ATOMIC] or [Mode.ATOMIC]

    @precondition(lambda self: self._usable())
    @rule(
        data=st.data(),
        pause=st.sampled_from(PAUSES),
        undo=st.booleans(),
        write=st.booleans(),
    )
    def complete(self, data: st.DataObject, pause: int, *, undo: bool, write: bool) -> None:
        """Let an owner settle, whether or not the claim is still its own."""
        self.clock.advance(pause)
        pair = self._draw(data)
        answer = Answer(200, ((b"x-try", pair.new.owner.hex().encode()),), pair.new.owner)
        effect = f"{self.number} {pair.new.owner.hex()}" if write else None

        async def settle(bench: Workbench[Any], attempt: Attempt[Any]) -> None:
            again = Attempt(attempt.store, attempt.new) if not pair.is_atomic else attempt
            if effect is not None:
                await bench.write(again, effect)
            await again.settle(answer, undo=undo)

        self._same(settle(self.tested, pair.tested), settle(self.model, pair.model))
        if pair.is_atomic:
            self.held.remove(pair)

    @precondition(lambda self: self._usable())
    @rule(data=st.data(), operation=st.sampled_from(["release", "put_in_doubt"]))
    def give_up(self, data: st.DataObject, operation: str) -> None:
        """Let an owner roll back an atomic claim, or say what became of a joined one."""
        pair = self._draw(data)
        if pair.is_atomic:
            self._same(pair.tested.roll_back(), pair.model.roll_back())
            self.held.remove(pair)
            return
        program = getattr(programs, operation)
        self._on_both(lambda: program(pair.tested.held))

    @precondition(lambda self: self.held)
    @rule(
        purge=st.booleans(),
        lease=st.sampled_from(LEASES),
        most=st.sampled_from([1, 10]),
        pause=st.sampled_from(PAUSES),
    )
    def keep(self, lease: float, most: int, pause: int, *, purge: bool) -> None:
        """Renew the latest joined claims that anybody believes to hold, or purge.

        The purge deletes all that is over: which part of it comes first is
        nobody's business.
        """
        self.clock.advance(pause)
        if purge:
            self._on_both(lambda: programs.purge(1000))
            return
        joined = [pair for pair in self.held if not pair.is_atomic]
        claims = [(pair.tested.held, lease) for pair in joined[-most:]]
        self._on_both(lambda: programs.renew(claims))

    @invariant()
    def hold_the_same(self) -> None:
        """Compare every claim and every effect."""
        self._same(self.tested.dump(), self.model.dump())
        mine = f"{self.number} "
        tested, model = self.run(self.tested.effects()), self.run(self.model.effects())
        assert [effect for effect in tested if effect.startswith(mine)] == model

    def _usable(self) -> list[Pair]:
        """Return what may be settled without waiting for a locked row."""
        locked = {pair.new.identity for pair in self.held if pair.is_atomic}
        return [pair for pair in self.held if pair.is_atomic or pair.new.identity not in locked]

    def _draw(self, data: st.DataObject) -> Pair:
        return data.draw(st.sampled_from(self._usable()), "attempt")

    def _on_both(self, program: Callable[[], Steps[T]]) -> T | str:
        return self._same(self.tested.store.run(program()), self.model.store.run(program()))

    def _same(self, tested: Coroutine[Any, Any, T], model: Coroutine[Any, Any, T]) -> T | str:
        results = self.run(_outcome(tested)), self.run(_outcome(model))
        assert results[0] == results[1], "the memory model does otherwise"
        return results[0]


async def _outcome(work: Awaitable[T]) -> T | str:
    try:
        return await work
    except SemelError as error:
        return type(error).__name__


class Differential(Group):
    """The memory store is the model of every other.

    Attributes:
        examples: how many runs of random operations are compared.
    """

    examples: ClassVar[int] = 20

    @pytest.mark.rule("S4", "Q2")
    @requires("clock_can_be_set")
    def test_the_store_does_what_the_model_does(self, harness: Harness[Any]) -> None:
        """In every step, for every result and every stored value."""
        asyncio.run(harness.prepare())
        modes = self.capabilities.modes

        class Comparison(Machine):
            def __init__(self) -> None:
                super().__init__(harness, modes)

        run_state_machine_as_test(
            Comparison,
            settings=settings(max_examples=self.examples, stateful_step_count=30, deadline=None),
        )
