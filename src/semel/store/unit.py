"""One claim's connection, written once for every driver that lends connections.

A driver brings a `Wire`, which runs single statements on one connection, and a
`Lender`, which knows where connections come from. What is left is here: borrow at
the first program, run programs, roll back and give back at the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from semel.errors import ClaimClosedError
from semel.store.render import Texts
from semel.store.statement import Rows, Statement, Steps, apump

T = TypeVar("T")
Tx = TypeVar("Tx")
Tx_co = TypeVar("Tx_co", covariant=True)


class Wire(Protocol[Tx_co]):
    """One connection, as programs talk over it."""

    @property
    def tx(self) -> Tx_co:
        """What the application runs its own statements on."""

    @property
    def touched(self) -> bool:
        """Whether the application used the connection in another way than by `tx`."""

    @property
    def begun(self) -> bool:
        """Whether the database has a transaction open on this connection."""

    @property
    def escaped(self) -> bool:
        """Whether the application ended the transaction that a program had begun."""

    async def run(self, statement: Statement) -> Rows:
        """Run one statement; raises `StoreError` or `ClaimLostError`."""

    async def end(self) -> None:
        """Roll back what is open and leave the connection as it was found."""


class Lender(Protocol[Tx]):
    """Where a unit gets its connection from."""

    async def borrow(self) -> Wire[Tx]:
        """Return a connection that nobody else uses; raises `StoreError`."""

    async def give_back(self, wire: Wire[Tx]) -> None:
        """Take a connection back. What is open on it is rolled back; never raises.

        A connection in doubt is closed instead of kept.
        """


class Unit(Generic[Tx]):
    """The connection of one claim; see `semel.store.protocol.AsyncUnit`.

    Attributes:
        wire: the connection while it is borrowed.
    """

    def __init__(self, lender: Lender[Tx]) -> None:
        """Borrow nothing yet."""
        self._lender = lender
        self.wire: Wire[Tx] | None = None
        self._closed = False
        self._asked = False

    @property
    def tx(self) -> Tx:
        """What the application runs its own statements on.

        Raises:
            ClaimClosedError: the connection was given back.
        """
        if self.wire is None:
            message = "the claim is settled: its transaction is over"
            raise ClaimClosedError(message)
        self._asked = True
        return self.wire.tx

    @property
    def touched(self) -> bool:
        """Whether the application used the transaction."""
        return self._asked or (self.wire is not None and self.wire.touched)

    @property
    def begun(self) -> bool:
        """Whether the database has a transaction open on this connection."""
        return self.wire is not None and self.wire.begun

    @property
    def escaped(self) -> bool:
        """Whether the application ended the transaction with a statement of its own."""
        return self.wire is not None and self.wire.escaped

    async def run(self, steps: Steps[T], *, writes: bool = True) -> T:
        """Run a program; the database orders the writers by itself."""
        del writes
        if self._closed:
            steps.close()
            message = "the unit is closed"
            raise ClaimClosedError(message)
        if self.wire is None:
            try:
                self.wire = await self._lender.borrow()
            except BaseException:
                steps.close()
                raise
        return await apump(self.wire.run, steps)

    async def close(self) -> None:
        """Roll back what is open and give the connection back; never raises."""
        wire, self.wire = self.wire, None
        self._closed = True
        if wire is not None:
            self._asked = self._asked or wire.touched
            await self._lender.give_back(wire)


async def prepare(
    texts: Texts,
    statements: Sequence[Statement],
    connection: object,
    command: Callable[[str], Awaitable[object]],
) -> None:
    """Make a script's statements known to a connection, unless they are.

    Args:
        texts: remembers the connections.
        statements: the script.
        connection: the driver's own, alive as long as the database's session.
        command: sends a text; raises an error with its `sqlstate`.
    """
    if connection in texts.prepared:
        return
    for sql in texts.preparations(statements):
        try:
            await command(sql)
        except Exception as error:
            # A pooler may have given this session to somebody else before.
            if getattr(error, "sqlstate", None) != "42P05":
                raise
    texts.prepared.add(connection)


async def run_once(lender: Lender[Tx], steps: Steps[T]) -> T:
    """Run a program on a borrowed connection and give that back."""
    unit = Unit(lender)
    try:
        return await unit.run(steps)
    finally:
        await unit.close()
