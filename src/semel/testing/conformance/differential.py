"""Group: the store does what the memory store does, step by step (rule Q2).

Hypothesis draws the operations of several owners on a few keys, and how time
goes by. After every step both stores have to hold the same claims and effects.

Two restrictions keep a test in one thread possible: a joined operation on a key
whose row an open atomic claim has locked would wait in a database, so it is not
drawn; and no two claims expire at the same moment, since which of them a purge
deletes first is nobody's business.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

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
from semel.memory import AsyncStore as MemoryStore
from semel.memory import MemoryTx
from semel.store import programs
from semel.store.statement import Statement
from semel.store.tables import Tables
from semel.testing.clock import FakeClock
from semel.testing.conformance.group import Group, requires
from semel.testing.conformance.harness import Harness, Workbench
from semel.testing.driving import Attempt

T = TypeVar("T")

KEYS = ("a", "b", "c")
BODIES = ("one", "two")
# Exact in binary and in microseconds, so that every store computes the same times.
# All steps of a run take less than a second, all durations are whole seconds: no two
# moments coincide.
STEP = 1 / 64
LEASES = (2.0, 5.0)
RETENTIONS = (3.0, 20.0)
# Each open atomic claim holds a connection.
MOST_OPEN = 3


class MemoryHarness(Harness[MemoryTx]):
    """The memory store as a harness: the model, and itself a store to be tested."""

    def __init__(self, kind: type[MemoryStore] = MemoryStore, **options: Any) -> None:  # noqa: ANN401 - the store's own
        """Make no store yet.

        Args:
            kind: the store's class.
            options: what it is made with.
        """
        self._kind = kind
        self._options = options
        self._stores: dict[object, MemoryStore] = {}

    def store(
        self, *, clock: Callable[[], float] | None = None, tables: Tables | None = None
    ) -> MemoryStore:
        """Return the one store there is for these names and this clock."""
        name = (clock, tables)
        if name not in self._stores:
            self._stores[name] = self._kind(clock=clock, tables=tables, **self._options)
        return self._stores[name]

    async def prepare(self) -> None:
        """Do nothing: effects need no table."""

    async def write_effect(self, tx: MemoryTx, value: str) -> None:
        """Stage an effect."""
        await tx.append(value)

    async def effects(self) -> list[str]:
        """Return what is committed in all stores."""
        return [effect for store in self._stores.values() for effect in store.effects]

    async def fail(self, tx: MemoryTx) -> None:
        """Complete a claim that nobody holds: an error aborts the transaction."""
        values = {"scope": b"", "key": b"", "owner": b"", "proof": None}
        tx._session(Statement("claim_complete", values))  # noqa: SLF001 - there is no other way


@dataclass(frozen=True, slots=True)
class Pair:
    """The same attempt on both stores."""

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

    @rule(
        key=st.sampled_from(KEYS),
        body=st.sampled_from(BODIES),
        lease=st.sampled_from(LEASES),
        retention=st.sampled_from(RETENTIONS),
        data=st.data(),
    )
    def acquire(
        self, key: str, body: str, lease: float, retention: float, data: st.DataObject
    ) -> None:
        """Let a new owner ask for a key."""
        self.clock.advance(STEP)
        new = self.tested.claim(
            key,
            body,
            mode=data.draw(st.sampled_from(self._modes_for(key)), "mode"),
            lease=lease,
            retention=retention,
            owner=next(self.owners).to_bytes(16, "big"),
        )
        pair = Pair(new, self.tested.attempt(new), self.model.attempt(new))
        decision = self._same(pair.tested.acquire(), pair.model.acquire())
        if isinstance(decision, Execute):
            self.held.append(pair)

    def _modes_for(self, key: str) -> list[Mode]:
        key_digest = self.tested.claim(key, mode=Mode.JOINED).identity.key
        if any(pair.is_atomic and pair.new.identity.key == key_digest for pair in self.held):
            return [Mode.ATOMIC]
        can_open = sum(pair.is_atomic for pair in self.held) < MOST_OPEN
        return [mode for mode in self.modes if can_open or mode is not Mode.ATOMIC] or [Mode.ATOMIC]

    @precondition(lambda self: self._usable())
    @rule(data=st.data(), undo=st.booleans(), write=st.booleans())
    def complete(self, data: st.DataObject, *, undo: bool, write: bool) -> None:
        """Let an owner settle, whether or not the claim is still its own."""
        self.clock.advance(STEP)
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
        self.clock.advance(STEP)
        pair = self._draw(data)
        if pair.is_atomic:
            self._same(pair.tested.roll_back(), pair.model.roll_back())
            self.held.remove(pair)
            return
        program = getattr(programs, operation)
        self._on_both(lambda: program(pair.tested.held))

    @rule(lease=st.sampled_from(LEASES))
    def renew(self, lease: float) -> None:
        """Renew every joined claim that anybody believes to hold."""
        self.clock.advance(STEP)
        claims = [(pair.tested.held, lease) for pair in self.held if not pair.is_atomic]
        self._on_both(lambda: programs.renew(claims))

    @rule(limit=st.sampled_from([1, 2, 100]))
    def purge(self, limit: int) -> None:
        """Delete what is over."""
        self.clock.advance(STEP)
        self._on_both(lambda: programs.purge(limit))

    @rule(seconds=st.sampled_from([1, 2, 3, 5, 20]))
    def wait(self, seconds: int) -> None:
        """Let time go by."""
        self.clock.advance(seconds)

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

    def _on_both(self, program: Callable[[], programs.Steps[T]]) -> T | str:
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
    """The memory store is the model of every other."""

    @pytest.mark.rule("S4", "Q2")
    @requires("clock_can_be_set")
    def test_the_store_does_what_the_model_does(self, harness: Harness[Any]) -> None:
        """In every step, for every result and every stored value."""
        asyncio.run(harness.prepare())
        run_state_machine_as_test(
            lambda: Machine(harness, self.capabilities.modes),
            settings=settings(max_examples=20, stateful_step_count=25, deadline=None),
        )
