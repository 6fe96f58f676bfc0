"""`semel migrate`: bring Semel's tables to the version that this release needs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from semel.cli.connection import connected
from semel.cli.failures import explained
from semel.cli.parameters import DEFAULT_PREFIX, Prefix, Schema, Store
from semel.errors import UsageError
from semel.opening import dialect_of
from semel.store import schema as versions
from semel.store.tables import Tables


def migrate(
    store: Store,
    *,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the whole schema as SQL; connect to nothing.")
    ] = False,
    schema: Schema = "",
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Make Semel's tables, or renew them; safe to repeat."""
    with explained(store):
        tables = Tables(schema, prefix)
        dialect = dialect_of(store)
        if dialect == "memory":
            raise UsageError("memory:// has no tables: there is nothing to migrate")
        if sql:
            typer.echo(versions.script(dialect, tables), nl=False)
            return
        applied = asyncio.run(_migrate(store, tables))
        if applied:
            typer.echo(f"applied: {', '.join(map(str, applied))}")
        else:
            typer.echo(f"nothing to do: the schema has version {versions.newest(dialect)}")


async def _migrate(url: str, tables: Tables) -> Sequence[int]:
    async with connected(url, tables) as store:
        return await store.migrate()
