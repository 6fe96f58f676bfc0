"""Store operations as data: a program yields statements, a driver runs them.

A program is a generator. It yields one `Statement` at a time, receives the
rows, and returns a typed value; it never sees a connection. `pump` runs it over
a blocking connection, `apump` over an asynchronous one, and both throw what the
connection raised into the program, at the statement that failed, so that the
handling of an error is written once as well.

A statement is a name and its parameters. The name is that of a file in
`sql/<dialect>/`, whose text runs as it stands in the database's own shell.
Times are the store's; the parameter `now` is added by the driver and is null
unless a test has set a clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Row: TypeAlias = Sequence[Any]
Rows: TypeAlias = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement to run.

    Attributes:
        name: the file in `sql/<dialect>/` that holds its text.
        params: values for the `:name` parameters of that text.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


Steps: TypeAlias = Generator[Statement, Rows, T]

# Control of the transaction is part of a program: the page of `programs.py`
# shows the whole sequence that a database sees.
BEGIN = Statement("begin")
COMMIT = Statement("commit")
ROLLBACK = Statement("rollback")
SAVEPOINT = Statement("savepoint")
ROLLBACK_TO = Statement("rollback_to")


def script(*statements: Statement) -> Statement:
    """Join statements into one round trip, for stores whose `scripts` is true.

    The first that fails ends it. What comes back are the rows of the last one, which
    may be empty: how many there are is all that every driver tells.
    """
    return Statement("script", {"statements": statements})


def count_rows(status: str) -> Rows:
    """Return as many rows, all empty, as PostgreSQL says that a statement returned."""
    command, _, count = status.rpartition(" ")
    return ((),) * int(count) if command == "SELECT" else ()


def pump(run: Callable[[Statement], Rows], steps: Steps[T]) -> T:
    """Run a program over a blocking connection.

    Args:
        run: executes one statement and raises `StoreError` where that fails.
        steps: the program.

    Returns:
        What the program returns.
    """
    try:
        statement = next(steps)
        while True:
            try:
                rows = run(statement)
            except Exception as error:  # noqa: BLE001 - the program decides what it means
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def apump(run: Callable[[Statement], Awaitable[Rows]], steps: Steps[T]) -> T:
    """Run a program over an asynchronous connection; see `pump`.

    A cancellation is not an `Exception`: it ends the program where it stands,
    and whoever owns the connection rolls back.
    """
    try:
        statement = next(steps)
        while True:
            try:
                rows = await run(statement)
            except Exception as error:  # noqa: BLE001 - the program decides what it means
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()
