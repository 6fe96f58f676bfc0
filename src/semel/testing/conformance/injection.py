"""Faults at one statement of a program, and a record of those that ran.

A fault happens before the store gets the statement, or after it has run and
before the program hears of it, as when a connection breaks on the way there or
on the way back. Neither store nor driver takes part in the deceit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from semel.errors import StoreConflictError, StoreUnavailableError
from semel.store.statement import Rows, Statement, Steps
from semel.testing.driving import wrapped

T = TypeVar("T")

When = Literal["before", "after"]
Kind = Literal["lost", "conflict"]
CONTROL = frozenset({"begin", "commit", "rollback", "savepoint", "rollback_to"})
# A script begins a transaction and sends more in the same round trip.
BEGINS = frozenset({"begin", "script"})
BOUNDS = BEGINS | {"commit", "rollback"}
READS = frozenset({"claim_look"})


def names_in(statement: Statement) -> list[str]:
    """Return the names of what is sent: of a script, those of its statements."""
    return [each.name for each in statement.params.get("statements", (statement,))]


@dataclass(slots=True)
class Fault:
    """Wraps programs; fails at one of their statements.

    Attributes:
        at: the number of the statement, from 1, counted over all programs.
        when: before or after the store ran it.
        kind: a lost connection, or a transaction that the database aborted. The
            latter undoes everything, so it can not follow a commit.
        is_open: whether a transaction is open before the next statement.
        seen: the names of all statements so far.
        raised: whether the error was raised.
    """

    at: int
    when: When
    kind: Kind = "lost"
    is_open: bool = False
    seen: list[str] = field(default_factory=list)
    raised: bool = False

    @property
    def is_past(self) -> bool:
        """Whether the programs ended before they came to the statement."""
        return len(self.seen) < self.at

    @property
    def struck(self) -> str:
        """The name of the statement."""
        return self.seen[self.at - 1]

    def __call__(self, steps: Steps[T], /) -> Steps[T]:
        """Return the program with the fault in it."""
        return wrapped(steps, self._run)

    def _run(self, statement: Statement) -> Steps[Rows]:
        self.seen.append(statement.name)
        strikes = len(self.seen) == self.at
        if strikes and self.when == "before":
            self._fail()
        rows = yield statement
        was_open = self.is_open
        if statement.name in BOUNDS:
            self.is_open = statement.name in BEGINS
        undoable = (was_open or statement.name in BEGINS) and self.is_open
        if strikes and self.when == "after" and (self.kind == "lost" or undoable):
            self._fail()
        return rows

    def _fail(self) -> None:
        self.raised = True
        if self.kind == "conflict":
            raise StoreConflictError("injected: aborted for another transaction's sake")
        raise StoreUnavailableError(
            "injected: the connection broke", outcome_unknown=self.when == "after"
        )


def faults(kind: Kind = "lost", *, is_open: bool = False, most: int = 20) -> Iterator[Fault]:
    """Yield a fault before and after the first statement, the second, and so on.

    The one who asks runs a program with each; it ends with one that was past the
    last statement.

    Args:
        kind: what happens.
        is_open: whether a transaction is open when the program starts.
        most: more statements than any program has.
    """
    whens: tuple[When, When] = ("before", "after")
    for at in range(1, most + 1):
        for when in whens:
            fault = Fault(at, when, kind, is_open)
            yield fault
            if fault.is_past:
                assert at > 1, "the program has no statement"
                return
    raise AssertionError(f"the program has more than {most} statements")


@dataclass(slots=True)
class Record:
    """Wraps programs and keeps the names of their statements.

    Attributes:
        names: all, in their order.
        commits: how often something was committed.
        is_open: whether a transaction is open, or was opened by the application.
    """

    names: list[str] = field(default_factory=list)
    commits: int = 0
    is_open: bool = False

    def __call__(self, steps: Steps[T], /) -> Steps[T]:
        """Return the program, recorded."""
        return wrapped(steps, self._run)

    @property
    def statements(self) -> list[str]:
        """The statements that are more than the control of a transaction.

        What a script says of itself is none: it touches no table.
        """
        return [name for name in self.names if name not in CONTROL and name != "claim_won"]

    def _run(self, statement: Statement) -> Steps[Rows]:
        name = statement.name
        rows = yield statement
        self.names += names_in(statement)
        by_itself = name not in CONTROL and name not in READS and not self.is_open
        self.commits += name == "commit" or (by_itself and name not in BEGINS and bool(rows))
        if name in BOUNDS:
            self.is_open = name in BEGINS
        return rows
