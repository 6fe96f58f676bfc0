"""The guard: claims a key for a request and says what to do with it.

    match await guard.acquire(scope, key, guard.fingerprint(image)):
        case AsyncClaim() as claim: run the handler on claim.tx, claim.complete(answer)
        case Replay(answer): …

Everything that makes a race is in the store's statements; here is only the order
in which programs run, what is tried again (before the handler: rule A6) and what
this process keeps in mind.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, Self, TypeAlias, TypeVar

from semel.claim import AsyncClaim
from semel.core.decide import decide
from semel.core.fingerprint import Fingerprinter, RequestImage
from semel.core.identity import Scope, identify, lock_id
from semel.core.key import short
from semel.core.model import (
    Decision,
    Execute,
    Identity,
    InDoubt,
    InFlight,
    Mismatch,
    Mode,
    NewClaim,
    NotStored,
    Replay,
    RequestFingerprint,
    StaleKey,
)
from semel.core.options import Options
from semel.errors import SemelError, StoreConflictError, StoreUnavailableError, UsageError
from semel.events import Event, EventHook, EventName, emit, is_heard
from semel.heartbeat import Heartbeat
from semel.participants import early
from semel.remembered import Remembered
from semel.shielding import shielded
from semel.store import programs
from semel.store.protocol import AsyncStore, AsyncUnit
from semel.store.statement import Steps
from semel.store.values import Held

Tx = TypeVar("Tx")

Refusal: TypeAlias = Replay | InFlight | Mismatch | StaleKey | InDoubt | NotStored

# Pooled connections die together when a server restarts; each try takes another.
ACQUIRE_TRIES = 4
# Seconds after which no further try is begun: a busy store waits inside each.
ACQUIRE_SECONDS = 5.0
# Seconds for claims to be settled when the guard is closed, and between looks at them.
CLOSE_SECONDS = 1.0
CLOSE_LOOK_SECONDS = 0.01

_current: ContextVar[AsyncClaim[Any] | None] = ContextVar("semel_claim", default=None)


def current() -> AsyncClaim[Any] | None:
    """Return the claim that this request holds, or held; `None` outside one."""
    return _current.get()


def restore(claim: AsyncClaim[Any] | None) -> None:
    """Make a claim, or none, the current one again (for authors of adapters).

    An application that calls another one in-process shares its context with it.
    """
    _current.set(claim)


class _Trace:
    """Whether a program was started, which takes a connection first."""

    def __init__(self) -> None:
        self.started = False

    def of(self, steps: Steps[Decision]) -> Steps[Decision]:
        """Return the program, watched."""
        self.started = True
        return (yield from steps)


class AsyncGuard(Generic[Tx]):
    """Guards an application's requests with the claims of one store."""

    def __init__(
        self,
        store: AsyncStore[Tx],
        options: Options | None = None,
        *,
        on_event: EventHook | None = None,
    ) -> None:
        """Combine a store with options; nothing is connected yet.

        Args:
            store: where the claims live.
            options: how requests are guarded.
            on_event: is told what happens.

        Raises:
            UsageError: the store can not work in the mode that was asked for.
        """
        self.store = store
        self.on_event = on_event
        self._remembered = Remembered((options or Options()).remembered)
        self._unsettled: set[bytes] = set()  # owners
        self._heartbeat = Heartbeat(store.link, on_event)
        self._use(options or Options())

    def _use(self, options: Options) -> None:
        self.options = options
        self.mode = options.mode or self.store.modes[0]
        if self.mode not in self.store.modes:
            supported = ", ".join(self.store.modes)
            message = f"this store does not support mode {self.mode}; it supports: {supported}"
            raise UsageError(message)
        self._fingerprinter = Fingerprinter(
            ignore=options.ignore, headers=options.fingerprint_headers, secrets=options.secrets
        )

    def with_options(self, **changes: Any) -> Self:  # noqa: ANN401 - the fields of Options
        """Return a guard for one route: same store, same heartbeat, other options."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._use(dataclasses.replace(self.options, **changes))
        return other

    def fingerprint(self, image: RequestImage) -> RequestFingerprint:
        """Take the fingerprint of a request by this guard's options."""
        return self._fingerprinter.of(image)

    def current(self) -> AsyncClaim[Tx]:
        """Return this request's claim.

        Raises:
            UsageError: outside a guarded request.
        """
        claim = _current.get()
        if claim is None:
            message = "no claim here: is the route guarded, and did the request carry a key?"
            raise UsageError(message)
        return claim

    async def open(self) -> None:
        """Connect the store; a first use does it by itself."""
        await self.store.open()

    async def aclose(self) -> None:
        """Stop the heartbeat and close what the store opened.

        Servers cancel their requests and shut the application down at once: claims
        that are still being settled get a moment to finish.
        """
        give_up = time.monotonic() + CLOSE_SECONDS
        while self._unsettled and time.monotonic() < give_up:  # noqa: ASYNC110 - once, at the end
            await asyncio.sleep(CLOSE_LOOK_SECONDS)
        self._heartbeat.stop()
        await self.store.aclose()

    async def __aenter__(self) -> Self:
        """Connect the store."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.aclose()

    async def acquire(
        self, scope: Scope, key: str, request: RequestFingerprint, *, route: str = ""
    ) -> AsyncClaim[Tx] | Refusal:
        """Claim a key.

        Args:
            scope: who owns the key: a verified principal, or `semel.SHARED`.
            key: the idempotency key.
            request: the request's fingerprint.
            route: names the route in events.

        Returns:
            A claim: run the handler, then settle it. Anything else: do not run it.

        Raises:
            ScopeMissingError: the scope is empty.
            RecipeUnknownError: the stored request can not be compared.
            StoreUnavailableError: the store can not be asked; nothing ran.
        """
        identity = identify(scope, key)
        owner = os.urandom(16)
        judge = partial(decide, request=request, owner=owner)
        for participant in early() or ():
            await participant.let_go()
        known = await self._look_first(identity, judge)
        if known is not None:
            self._tell(known, identity, route)
            return known
        new = NewClaim(
            identity=identity,
            mode=self.mode,
            request=request,
            owner=owner,
            lease=self.options.lease,
            retention=self.options.retention,
            idle_timeout=self.options.idle_timeout,
            lock=lock_id(self.store.tables.schema, self.store.tables.prefix, identity),
        )
        self._unsettled.add(owner)
        try:
            decision, unit = await self._claim(new, judge)
        except BaseException:
            self._unsettled.discard(owner)
            raise
        if isinstance(decision, Execute):
            claim = self._grant(unit, new, decision, route)
            _current.set(claim)
            return claim
        self._unsettled.discard(owner)
        self._tell(decision, identity, route)
        return decision

    async def _look_first(self, identity: Identity, judge: programs.Judge) -> Refusal | None:
        """Read before claiming, where that is how the store works or the key is known."""
        remembered = identity in self._remembered
        if not (self.store.reads_first or remembered):
            return None
        found = await self.store.run(programs.look(identity), writes=False)
        decision = judge(found) if found is not None else None
        if decision is None or isinstance(decision, Execute):
            self._remembered.forget(identity)
            return None
        if self.store.reads_first or isinstance(decision, Replay | Mismatch | NotStored):
            return decision
        return None

    async def _claim(self, new: NewClaim, judge: programs.Judge) -> tuple[Decision, AsyncUnit[Tx]]:
        """Run the acquire; before the handler every failure may be tried again (A6, A7)."""
        failure: SemelError | None = None
        give_up = time.monotonic() + ACQUIRE_SECONDS
        for _ in range(ACQUIRE_TRIES):
            unit, trace = self.store.unit(), _Trace()
            try:
                decision = await unit.run(self._acquiring(new, judge, trace))
                opens = new.mode is not Mode.ATOMIC and not self.store.lazy_effect
                if isinstance(decision, Execute) and opens:
                    held = Held(new.identity, new.owner, new.retention)
                    effect = programs.open_effect(held, new.idle_timeout, new.lock)
                    decision = dataclasses.replace(decision, transaction=await unit.run(effect))
            except (StoreUnavailableError, StoreConflictError) as error:
                failure = error
                await shielded(unit.close())
                if time.monotonic() > give_up:
                    break
                continue
            except BaseException:
                await shielded(self._give_up(unit, new, sent=trace.started))
                raise
            if not isinstance(decision, Execute):
                await shielded(unit.close())
            return decision, unit
        message = f"the claim could not be made: {failure}"
        raise StoreUnavailableError(message) from failure

    def _acquiring(self, new: NewClaim, judge: programs.Judge, trace: _Trace) -> Steps[Decision]:
        if new.mode is Mode.ATOMIC:
            return programs.acquire_atomic(new, judge, scripts=self.store.scripts)
        in_transaction = self.store.claims_in_transaction
        return trace.of(programs.acquire_joined(new, judge, transaction=in_transaction))

    async def _give_up(self, unit: AsyncUnit[Tx], new: NewClaim, *, sent: bool) -> None:
        """Leave nothing behind when the acquire itself is cut short."""
        await unit.close()
        if new.mode is Mode.ATOMIC or not sent:
            return
        held = Held(new.identity, new.owner, new.retention)
        try:
            await self.store.run(programs.release(held))
        except SemelError as error:  # the lease runs out by itself
            emit(self.on_event, Event("store-unavailable", detail=str(error)))

    def _grant(
        self, unit: AsyncUnit[Tx], new: NewClaim, decision: Execute, route: str
    ) -> AsyncClaim[Tx]:
        if decision.takeover:
            self._emit("takeover", new.identity, route)
        return AsyncClaim(
            self.store,
            unit,
            new,
            decision,
            self.options,
            route=route,
            heartbeat=self._heartbeat,
            remembered=self._remembered,
            unsettled=self._unsettled,
            participants=list(early() or ()),
            on_event=self.on_event,
        )

    def _tell(self, decision: Refusal, identity: Identity, route: str) -> None:
        names: dict[type[Refusal], EventName] = {
            Replay: "replayed",
            InFlight: "in-flight",
            Mismatch: "mismatch",
            StaleKey: "stale-key",
            InDoubt: "in-doubt",
            NotStored: "not-stored",
        }
        if isinstance(decision, Replay | NotStored):
            self._remembered.add(identity)
        self._emit(names[type(decision)], identity, route)

    def _emit(self, name: EventName, identity: Identity, route: str) -> None:
        if is_heard(self.on_event, name):
            emit(self.on_event, Event(name, route, short(identity.scope), short(identity.key)))
