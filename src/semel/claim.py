"""A claim that this process holds: run the effect on `tx`, then settle it once.

Settling is shielded: a client that leaves or a task that is cancelled can not
part effect and claim (rule O5).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from semel.core.decide import decide
from semel.core.key import short
from semel.core.model import (
    Answer,
    Decision,
    Execute,
    Found,
    InDoubt,
    Mode,
    NewClaim,
    Status,
)
from semel.core.options import Options
from semel.errors import (
    ClaimClosedError,
    ClaimError,
    ClaimLostError,
    CommitFailedError,
    RecipeUnknownError,
    SemelError,
    StoreError,
)
from semel.events import Event, EventHook, EventName, emit, is_heard
from semel.heartbeat import Heartbeat
from semel.participants import Participant
from semel.remembered import Remembered
from semel.shielding import put_off, shielded
from semel.store import programs
from semel.store.protocol import AsyncStore, AsyncUnit
from semel.store.statement import Steps
from semel.store.values import Held

T = TypeVar("T")
Tx = TypeVar("Tx")

# Looks after a settlement that failed: the database may be restarting.
LOOK_TRIES = 3


class AsyncClaim(Generic[Tx]):
    """The right to run one handler under one key.

    Attributes:
        identity: the digests of scope and key.
        token: the fencing token of this acquire, for foreign systems.
        takeover: another owner held the claim before and lost it.
        lost: the lease was lost; what is done on `tx` will be rolled back.
        closed: the claim is settled.
        participants: sessions that work in the claim's transaction.
        unit: the claim's connection, for authors of adapters.
    """

    def __init__(  # noqa: PLR0913 - made in one place, by the guard
        self,
        store: AsyncStore[Tx],
        unit: AsyncUnit[Tx],
        new: NewClaim,
        granted: Execute,
        options: Options,
        *,
        route: str,
        heartbeat: Heartbeat,
        remembered: Remembered,
        unsettled: set[bytes],
        participants: list[Participant],
        on_event: EventHook | None,
    ) -> None:
        """Hold a claim that the store has granted."""
        self.identity = new.identity
        self.token = granted.token
        self.takeover = granted.takeover
        self.lost = False
        self.closed = False
        self.participants = participants
        self.unit = unit
        self._store = store
        self._new = new
        self._transaction = granted.transaction
        self._held = Held(new.identity, new.owner, new.retention, granted.place)
        self._options = options
        self._route = route
        self._heartbeat = heartbeat
        self._remembered = remembered
        self._unsettled = unsettled
        self._on_event = on_event
        self._after_commit: list[Callable[[], Awaitable[None] | None]] = []
        if new.mode is not Mode.ATOMIC:
            heartbeat.keep(self._held, new.lease, self._lose)

    @property
    def tx(self) -> Tx:
        """The transaction that the answer will be committed in.

        Raises:
            ClaimClosedError: the claim is settled.
        """
        if self.closed:
            message = "the claim is settled: its transaction is over"
            raise ClaimClosedError(message)
        return self.unit.tx

    @property
    def touched(self) -> bool:
        """Whether the handler used the claim's transaction (rule W2)."""
        return self.unit.touched

    @property
    def scope_digest(self) -> str:
        """The scope's short digest, for logs."""
        return short(self.identity.scope)

    @property
    def key_digest(self) -> str:
        """The key's short digest, for logs."""
        return short(self.identity.key)

    def after_commit(self, work: Callable[[], Awaitable[None] | None]) -> None:
        """Have something done once, after the commit, and never on a replay (rule O4)."""
        if self.closed:
            message = "the claim is settled: run the work directly"
            raise ClaimClosedError(message)
        self._after_commit.append(work)

    async def complete(self, answer: Answer) -> None:
        """Settle the claim with an answer (rules O1, O2).

        Below 400 the answer is committed together with the effect. From 400 on the
        effects are rolled back; a status that is stored is then committed, any other
        releases the claim, so that a retry executes.

        Raises:
            CommitFailedError: nothing was committed; its `decision` says what to
                answer instead.
            ClaimClosedError: the claim was settled before.
        """
        self._close()
        work = self._finish(self._complete(answer))
        # What is no success may have to wait for another connection, with a time-out.
        if self._store.steady and answer.status < 400:  # noqa: PLR2004
            await put_off(work)
        else:
            await shielded(work)

    async def release(self) -> None:
        """Roll everything back and give the key back; a second call does nothing."""
        if self.closed:
            return
        self._close()
        self._after_commit.clear()
        await shielded(self._finish(self._release()))

    async def run_after_commit(self) -> None:
        """Run what was given to `after_commit`; an error in one stops no other."""
        waiting, self._after_commit = self._after_commit, []
        for work in waiting:
            try:
                result = work()
                if inspect.isawaitable(result):
                    await result
            except Exception as error:  # noqa: BLE001 - the effect is committed: only report
                self._emit("after-commit-failed", type(error).__name__)

    def _close(self) -> None:
        if self.closed:
            message = "the claim is settled already"
            raise ClaimClosedError(message)
        self.closed = True
        self._heartbeat.drop(self._held)

    async def _finish(self, settlement: Coroutine[Any, Any, None]) -> None:
        try:
            await settlement
        finally:
            self._unsettled.discard(self._new.owner)

    async def _complete(self, answer: Answer) -> None:
        # The completion itself proves a success; nothing else would prove the rest.
        failing = answer.status >= 400  # noqa: PLR2004 - rule O2
        if self.unit.escaped or (failing and await self._has_escaped()):
            await shielded(self._escape())
            message = "the handler ended the claim's transaction itself"
            raise CommitFailedError(message, InDoubt())
        if failing:
            await self._discard()
        if not self._options.storable.is_storable(answer.status):
            if not failing:
                await self._discard()
            self._after_commit.clear()
            await shielded(self._give_back())
            return
        try:
            if not failing:
                for participant in self.participants:
                    await participant.deliver()
            await self.unit.run(self._settling(answer))
        except SemelError as error:
            await self.unit.close()
            await shielded(self._fail(error))
        else:
            await self.unit.close()
        if failing:
            self._after_commit.clear()
        self._remembered.add(self.identity)
        self._emit("executed", str(answer.status))

    def _settling(self, answer: Answer) -> Steps[None]:
        undo = answer.status >= 400  # noqa: PLR2004 - rule O2
        if self._new.mode is Mode.ATOMIC:
            return programs.settle_atomic(self._held, answer, undo=undo)
        return programs.settle_joined(self._held, answer, begun=self.unit.begun, undo=undo)

    async def _discard(self) -> None:
        for participant in self.participants:
            with suppress(SemelError):
                await participant.discard()

    async def _release(self) -> None:
        await self._discard()
        if await self._has_escaped():
            await self._escape()
        else:
            await self._give_back()

    async def _give_back(self) -> None:
        """Undo the effects; in joined mode the committed claim is released as well."""
        with suppress(StoreError, ClaimError):  # a dead connection has rolled back by itself
            await self.unit.run(programs.abandon(begun=self.unit.begun))
        await self.unit.close()
        if self._new.mode is Mode.ATOMIC:
            self._emit("released")
            return
        try:
            released = await self._store.run(programs.release(self._held))
        except StoreError as error:  # the lease runs out by itself
            self._emit("store-unavailable", str(error))
        else:
            self._emit("released" if released else "claim-lost")

    async def _escape(self) -> None:
        """Face a handler that ended the transaction itself: its effects may be there."""
        self._after_commit.clear()
        self._emit("transaction-escaped", "the handler sent COMMIT or ROLLBACK as SQL")
        await self.unit.close()
        with suppress(StoreError):
            await self._store.run(programs.put_in_doubt(self._held))

    async def _has_escaped(self) -> bool:
        """Say whether the handler ended the transaction itself, as text (rule W2).

        In atomic mode an escaped claim's own row tells, and where the effect's
        transaction begins by itself the driver refuses such texts.
        """
        if self.unit.escaped:
            return True
        if self._new.mode is Mode.ATOMIC or self._store.lazy_effect or not self.unit.begun:
            return False
        try:
            return not await self.unit.run(programs.prove(self._held))
        except StoreError:  # aborted or gone: the database has rolled back what was open
            return await self._left_committed()

    async def _left_committed(self) -> bool:
        """Say the same of a transaction that could not be asked; it is over afterwards."""
        if self._transaction is None:
            return False
        asking = programs.was_committed(self._transaction, begun=self.unit.begun)
        try:
            return await self.unit.run(asking)
        except StoreError:  # the connection is gone; another one knows
            await self.unit.close()
            return await self._was_committed()

    async def _was_committed(self) -> bool:
        """Say whether the handler committed the effect's transaction, as the database knows."""
        if self._transaction is None:
            return False
        try:
            return await self._store.run(programs.was_committed(self._transaction), writes=False)
        except StoreError:
            return False

    async def _fail(self, error: Exception) -> None:
        """Look once after a failed settlement (rule A6); return if it took effect."""
        decision: Decision | None = None
        for _ in range(LOOK_TRIES):
            try:
                found = await self._store.run(
                    programs.look(self.identity, self._lock()), writes=False
                )
            except StoreError:
                continue
            if found is None:
                break
            if found.owner == self._new.owner and found.status is Status.COMPLETED:
                return  # the commit went through, only its answer was lost
            decision = await self._interpret(found, error)
            break
        self._after_commit.clear()
        self._emit("commit-failed", str(error))
        message = f"the answer could not be committed: {error}"
        raise CommitFailedError(message, decision) from error

    async def _interpret(self, found: Found, error: Exception) -> Decision | None:
        if found.owner != self._new.owner:
            try:
                decision = decide(found, self._new.request, b"")
            except RecipeUnknownError:
                return None
            return None if isinstance(decision, Execute) else decision
        if self._new.mode is Mode.ATOMIC:
            return InDoubt()  # visible although it was never completed: it escaped
        # Ours, and still not completed: it escaped, at once or before it failed.
        if isinstance(error, ClaimLostError) or await self._was_committed():
            await self._escape()
            return InDoubt()
        with suppress(StoreError):
            await self._store.run(programs.release(self._held))
        return None

    def _lock(self) -> int | None:
        return self._new.lock if self._new.mode is Mode.ATOMIC else None

    def _lose(self) -> None:
        self.lost = True
        self._emit("claim-lost")

    def _emit(self, name: EventName, detail: str = "") -> None:
        if is_heard(self._on_event, name):
            event = Event(name, self._route, self.scope_digest, self.key_digest, detail)
            emit(self._on_event, event)
