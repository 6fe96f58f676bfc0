"""`semel demo`: the story of a key, told by a real service over real HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from semel.cli.failures import explained
from semel.cli.parameters import DEFAULT_PREFIX, Prefix, Schema
from semel.errors import UsageError
from semel.opening import FORMS, dialect_of


def demo(
    *,
    once: Annotated[
        bool, typer.Option("--once", help="End after the story; fail unless all of it held.")
    ] = False,
    store: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="SEMEL_STORE",
            help=f"Where the claims live: {FORMS.split(' or ')[0]}. By default a file of "
            "SQLite in a temporary folder.",
        ),
    ] = "",
    schema: Schema = "",
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Watch five parallel requests with one key make one payment, and more."""
    with explained(store):
        if store and dialect_of(store) == "memory":
            raise UsageError("the demo kills its service: memory:// would not survive that")
    # Only this command needs an HTTP client, which takes its time to import.
    from semel.cli.telling import run_demo  # noqa: PLC0415

    options = ("--schema", schema, "--prefix", prefix)
    code = asyncio.run(run_demo(store, once=once, options=options))
    if code:
        raise typer.Exit(code)
