"""Drives a store step by step, in the order in which the guard does it.

`Attempt` is one request's use of a store: acquire, run an effect, settle or roll
back. Every program that it runs can be wrapped on its way to the store; that is
how statements are counted and how faults are injected, whatever the driver.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar

from semel.core.decide import decide
from semel.core.identity import lock_id
from semel.core.model import Answer, Decision, Execute, Identity, InFlight, Mode, NewClaim
from semel.errors import StoreConflictError, StoreUnavailableError
from semel.store import programs
from semel.store.protocol import AsyncStore, AsyncUnit
from semel.store.statement import Rows, Statement, Steps
from semel.store.tables import Tables
from semel.store.values import Held

T = TypeVar("T")
Tx = TypeVar("Tx")

LEASE = 10.0
RETENTION = 100.0
IDLE_TIMEOUT = 30.0
ANSWER = Answer(201, ((b"content-type", b"application/json"),), b'{"paid": true}')

# The guard tries so often, each time with another connection.
PATIENCE = 4


class Wrap(Protocol):
    """Stands between a program and the store."""

    def __call__(self, steps: Steps[T], /) -> Steps[T]:
        """Return the program to run in place of this one."""


def unchanged(steps: Steps[T], /) -> Steps[T]:
    """Run the program as it is."""
    return steps


def wrapped(steps: Steps[T], run: Callable[[Statement], Steps[Rows]]) -> Steps[T]:
    """Run a program whose every statement is given to `run` first.

    Args:
        steps: the program.
        run: yields the statement to the store, or does not; what it raises is
            raised in the program, at the statement.
    """
    try:
        statement = next(steps)
        while True:
            try:
                rows = yield from run(statement)
            except Exception as error:  # noqa: BLE001 - the program decides what it means
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def digest(text: str) -> bytes:
    """Return 32 bytes that stand for a text."""
    return hashlib.sha256(text.encode()).digest()


def identity(key: str, scope: str = "scope") -> Identity:
    """Return the identity of a key in a scope."""
    return Identity(digest(scope), digest(key))


@dataclass(frozen=True, slots=True)
class Request:
    """A fingerprint that is compared byte by byte; see `RequestFingerprint`."""

    digest: bytes
    raw: bytes
    recipe: str = "test-1"

    @classmethod
    def of(cls, body: str) -> Self:
        """Return the fingerprint of a request with this body."""
        return cls(digest(body), digest(f"raw {body}"))

    def matches(self, recipe: str, digest: bytes, raw: bytes) -> bool:
        """Say whether the stored request is this one."""
        return (recipe, digest, raw) == (self.recipe, self.digest, self.raw)


def new_claim(  # noqa: PLR0913 - the fields of a claim, all with defaults
    key: str = "key",
    body: str = "one",
    *,
    mode: Mode,
    scope: str = "scope",
    lease: float = LEASE,
    retention: float = RETENTION,
    owner: bytes | None = None,
    tables: Tables | None = None,
) -> NewClaim:
    """Return a claim that a request with this key and body would like to take.

    Args:
        key: names the key.
        body: names the request.
        mode: how claim and effect share transactions.
        scope: names the scope.
        lease: seconds.
        retention: seconds.
        owner: 16 bytes; random by default.
        tables: where the store has its tables.
    """
    names, who = tables or Tables(), identity(key, scope)
    return NewClaim(
        identity=who,
        mode=mode,
        request=Request.of(body),
        owner=owner or secrets.token_bytes(16),
        lease=lease,
        retention=retention,
        idle_timeout=IDLE_TIMEOUT,
        lock=lock_id(names.schema, names.prefix, who),
    )


def held(new: NewClaim) -> Held:
    """Return what the owner of a claim proves its right with."""
    return Held(new.identity, new.owner, new.retention)


def acquiring(store: AsyncStore[Any], new: NewClaim) -> Steps[Decision]:
    """Return the program that takes a claim on a store, in the claim's mode."""
    judge = partial(decide, request=new.request, owner=new.owner)
    if new.mode is Mode.ATOMIC:
        return programs.acquire_atomic(new, judge, scripts=store.scripts)
    return programs.acquire_joined(new, judge, transaction=store.claims_in_transaction)


class Attempt(Generic[Tx]):
    """One request's use of a store.

    Attributes:
        store: the store.
        new: the claim that it tries to take.
        unit: its connection.
        held: what the owner proves its right with.
    """

    def __init__(self, store: AsyncStore[Tx], new: NewClaim) -> None:
        """Do nothing yet."""
        self.store = store
        self.new = new
        self.unit: AsyncUnit[Tx] = store.unit()
        self.held = held(new)

    async def acquire(self, wrap: Wrap = unchanged) -> Decision:
        """Try to take the claim, once.

        Returns:
            `Execute` with the unit open; with any other decision it is closed.
        """
        try:
            decision = await self._look_first(wrap)
            if decision is None:
                decision = await self.unit.run(wrap(acquiring(self.store, self.new)))
        except BaseException:
            await self.close()
            raise
        if not isinstance(decision, Execute):
            await self.close()
            return decision
        # Where the row is kept is between the store's statements, and no test's business.
        self.held = replace(self.held, place=decision.place)
        return replace(decision, place=None)

    async def acquire_patiently(self, wrap: Wrap = unchanged) -> Decision:
        """Try again where the store failed before the handler ran (rule A6)."""
        for _ in range(PATIENCE - 1):
            try:
                return await self.acquire(wrap)
            except (StoreConflictError, StoreUnavailableError):
                self.unit = self.store.unit()
        return await self.acquire(wrap)

    async def begin(self, wrap: Wrap = unchanged) -> Tx:
        """Make sure that the effect's transaction is open; return what it runs on."""
        if self.new.mode is not Mode.ATOMIC and not (self.unit.begun or self.store.lazy_effect):
            await self.unit.run(wrap(programs.open_effect(self.held, IDLE_TIMEOUT, self.new.lock)))
        return self.unit.tx

    def settling(self, answer: Answer = ANSWER, *, undo: bool = False) -> Steps[None]:
        """Return the program that settles this attempt as it stands."""
        if self.new.mode is Mode.ATOMIC:
            return programs.settle_atomic(self.held, answer, undo=undo)
        return programs.settle_joined(self.held, answer, begun=self.unit.begun, undo=undo)

    async def settle(
        self, answer: Answer = ANSWER, *, undo: bool = False, wrap: Wrap = unchanged
    ) -> None:
        """Commit effect and answer, or raise; the unit is closed in either case."""
        try:
            await self.unit.run(wrap(self.settling(answer, undo=undo)))
        finally:
            await self.close()

    async def roll_back(self) -> None:
        """Undo everything and give the key back."""
        await self.unit.run(programs.abandon(begun=self.unit.begun))
        await self.close()
        if self.new.mode is not Mode.ATOMIC:
            await self.store.run(programs.release(self.held))

    async def close(self) -> None:
        """Give the connection back, without a word to the store about the claim."""
        await self.unit.close()

    async def _look_first(self, wrap: Wrap) -> Decision | None:
        if not self.store.reads_first:
            return None
        found = await self.store.run(wrap(programs.look(self.new.identity)), writes=False)
        if found is None:
            return None
        decision = decide(found, self.new.request, self.new.owner)
        return None if isinstance(decision, Execute) else decision


def is_refusal(decision: Decision, answer: Answer = ANSWER) -> bool:
    """Say whether a decision is one that the loser of a race may get (rule A1)."""
    return isinstance(decision, InFlight) or getattr(decision, "answer", None) == answer
