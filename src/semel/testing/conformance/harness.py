"""What the suite has to know about a store, and what it drives the store with.

The one who brings a store writes a `Harness`: about ten lines, see there. The
tests get a `Workbench`, which makes claims and attempts and cleans up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from semel.core.model import Answer, Decision, Execute, Found, Identity, Mode, NewClaim
from semel.opening import OpenedStore
from semel.store.listing import Listed, list_claims
from semel.store.programs import look
from semel.store.tables import Tables
from semel.testing.clock import FakeClock
from semel.testing.driving import ANSWER, LEASE, RETENTION, Attempt, new_claim

Tx = TypeVar("Tx")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do; the suite branches on this and never on a store's name.

    Attributes:
        modes: the same as the store's own `modes`.
        processes: other processes reach the same claims, so that times are
            compared on a clock that is not this process's.
        concurrent: several transactions that write may be open at once, and a
            row that one of them has locked is passed over.
        schema: there are tables, which a migration makes.
        clock_can_be_set: `Harness.store` heeds its clock.
    """

    modes: tuple[Mode, ...]
    processes: bool = False
    concurrent: bool = False
    schema: bool = False
    clock_can_be_set: bool = False

    @property
    def atomic(self) -> bool:
        """Whether claim, effect and answer can share one transaction."""
        return Mode.ATOMIC in self.modes

    @property
    def joined(self) -> bool:
        """Whether the claim can be committed first, and the effect with the answer."""
        return Mode.JOINED in self.modes


class Harness(ABC, Generic[Tx]):
    """Brings one kind of store to the suite.

    The harness of one test stands for one database, empty at first. Where the
    store can be reached from other processes, the harness is pickled to them, so
    it should be a module's class with a few plain fields.

        class MyHarness(Harness[MyConnection]):
            def __init__(self, url):
                self.url = url

            def store(self, *, clock=None, tables=None):
                return MyStore(self.url, clock=clock, tables=tables)

            async def prepare(self):
                ...  # CREATE TABLE effect (value text)

            async def write_effect(self, tx, value):
                await tx.execute("INSERT INTO effect VALUES (?)", [value])

            async def effects(self):
                ...  # SELECT value FROM effect, on a connection of its own

            async def fail(self, tx):
                await tx.execute("SELECT * FROM missing")
    """

    @abstractmethod
    def store(
        self, *, clock: Callable[[], float] | None = None, tables: Tables | None = None
    ) -> OpenedStore[Tx]:
        """Return one more store on this harness's database; the suite closes it.

        Args:
            clock: the time that the store should take for its own.
            tables: names of Semel's tables in place of the usual ones.
        """

    @abstractmethod
    async def prepare(self) -> None:
        """Make whatever `write_effect` needs; called once for each test."""

    @abstractmethod
    async def write_effect(self, tx: Tx, value: str) -> None:
        """Do what a handler does: write something on `tx` that commits with it."""

    @abstractmethod
    async def effects(self) -> list[str]:
        """Return the effects that are committed, in any order, read from outside."""

    @abstractmethod
    async def fail(self, tx: Tx) -> None:
        """Run a statement on `tx` that the store refuses, and raise its error."""

    def unreachable(self) -> OpenedStore[Tx]:
        """Return a store at an address where none answers (where processes share it)."""
        raise NotImplementedError

    async def describe(self, tables: Tables) -> object:
        """Return columns and indexes of Semel's tables, to compare (where it has a schema)."""
        raise NotImplementedError

    async def execute(self, sql: str) -> None:
        """Run a text of SQL on a connection of its own (where it has a schema)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Row:
    """Everything that can be read about a claim; equal rows are unchanged rows."""

    listed: Listed
    found: Found


class Workbench(Generic[Tx]):
    """A store, its harness, and short ways to do what tests do.

    Attributes:
        harness: the harness.
        store: the store under test, migrated.
    """

    def __init__(
        self, harness: Harness[Tx], clock: FakeClock | None = None, tables: Tables | None = None
    ) -> None:
        """Make the store; `open` prepares it."""
        self.harness = harness
        self.store = harness.store(clock=clock, tables=tables)
        self._clock = clock
        self._attempts: list[Attempt[Tx]] = []

    @property
    def clock(self) -> FakeClock:
        """The clock that the store goes by."""
        assert self._clock is not None, "this store goes by its own clock"
        return self._clock

    async def open(self) -> None:
        """Open and migrate the store."""
        await self.store.migrate()

    async def aclose(self) -> None:
        """Close every attempt and the store."""
        for attempt in self._attempts:
            await attempt.close()
        await self.store.aclose()

    def claim(  # noqa: PLR0913 - the fields of a claim, all with defaults
        self,
        key: str = "key",
        body: str = "one",
        *,
        mode: Mode,
        scope: str = "scope",
        lease: float = LEASE,
        retention: float = RETENTION,
        owner: bytes | None = None,
    ) -> NewClaim:
        """Return a claim for this store; see `semel.testing.driving.new_claim`."""
        return new_claim(
            key,
            body,
            mode=mode,
            scope=scope,
            lease=lease,
            retention=retention,
            owner=owner,
            tables=self.store.tables,
        )

    def attempt(self, new: NewClaim) -> Attempt[Tx]:
        """Return an attempt that is closed when the test ends."""
        attempt = Attempt(self.store, new)
        self._attempts.append(attempt)
        return attempt

    async def held(self, new: NewClaim) -> Attempt[Tx]:
        """Take a claim that must be free."""
        attempt = self.attempt(new)
        decision = await attempt.acquire()
        assert isinstance(decision, Execute), f"the claim was to be had, but: {decision}"
        return attempt

    async def ask(self, new: NewClaim) -> Decision:
        """Try to take a claim; an atomic one that was taken is rolled back at once."""
        attempt = self.attempt(new)
        decision = await attempt.acquire()
        await attempt.close()
        return decision

    async def completed(
        self, new: NewClaim, answer: Answer = ANSWER, *, effect: str | None = None
    ) -> None:
        """Take a claim that must be free, write an effect, and settle it."""
        attempt = await self.held(new)
        if effect is not None:
            await self.write(attempt, effect)
        await attempt.settle(answer)

    async def write(self, attempt: Attempt[Tx], effect: str) -> None:
        """Write an effect in the attempt's transaction."""
        await self.harness.write_effect(await attempt.begin(), effect)

    async def look(self, identity: Identity) -> Found | None:
        """Read a claim from outside."""
        return await self.store.run(look(identity), writes=False)

    async def found(self, identity: Identity) -> Found:
        """Read a claim that must be there."""
        found = await self.look(identity)
        assert found is not None, "there is no such claim"
        return found

    async def effects(self) -> list[str]:
        """Return the committed effects in alphabetical order."""
        return sorted(await self.harness.effects())

    async def dump(self) -> list[Row]:
        """Read every committed claim."""
        rows = []
        for listed in await self.store.run(list_claims(10_000), writes=False):
            found = await self.found(Identity(listed.scope, listed.key))
            rows.append(Row(listed, replace(found, now=0.0)))
        return sorted(rows, key=lambda row: (row.listed.scope, row.listed.key))

    async def row(self, identity: Identity) -> Row | None:
        """Read everything about one claim."""
        rows = [row for row in await self.dump() if row.listed.key == identity.key]
        return next((row for row in rows if row.listed.scope == identity.scope), None)
