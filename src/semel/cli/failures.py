"""How a command fails: one line on stderr that says what to do, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from semel.errors import SemelError, StoreError, StoreSchemaError
from semel.opening import scrubbed


class ExitCode(IntEnum):
    """What a command's exit code says."""

    OK = 0
    FAILED = 1
    USAGE = 2
    STORE = 3
    INTERRUPTED = 130


EPILOG = (
    "Exit codes: 0 all went well, 1 what was asked for did not hold, "
    "2 the command or its set-up is wrong, 3 the store can not be reached."
)


def complain(message: str) -> None:
    """Say in one line on stderr what is wrong."""
    sys.stderr.write(f"semel: error: {' '.join(message.split())}\n")


@contextmanager
def explained(url: str = "") -> Iterator[None]:
    """Turn Semel's errors into a line and an exit code.

    Args:
        url: the address of the store, whose password must not be shown.
    """
    try:
        yield
    except SemelError as error:
        complain(scrubbed(str(error), url) if url else str(error))
        raise typer.Exit(code_of(error)) from error


def code_of(error: SemelError) -> ExitCode:
    """Return the exit code that stands for an error."""
    if isinstance(error, StoreError) and not isinstance(error, StoreSchemaError):
        return ExitCode.STORE
    return ExitCode.USAGE
