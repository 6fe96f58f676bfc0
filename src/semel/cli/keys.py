"""`semel keys`: the claims, as an operator may see them."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from semel.cli.connection import connected
from semel.cli.failures import EPILOG, explained
from semel.cli.parameters import DEFAULT_PREFIX, Prefix, Schema, Store
from semel.core.key import short
from semel.opening import refuse_missing_file
from semel.store.listing import Listed, list_claims
from semel.store.tables import Tables

keys = typer.Typer(name="keys", help="Look at claims.")

COLUMNS = ("key", "scope", "status", "answer_status", "mode", "token", "created_at", "expires_at")
# A table of digests and times does not shrink; what is not a terminal gets all of it.
WIDTH = 140


@keys.callback()
def group() -> None:
    """Look at claims. Keys and scopes appear as short digests, never as they came."""


@keys.command("list", epilog=EPILOG)
def show(
    store: Store,
    *,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    schema: Schema = "",
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """List claims, the newest first.

    `printf %s KEY | sha256sum | cut -c 1-12` is the digest of a key.
    """
    with explained(store):
        claims = asyncio.run(_list(store, Tables(schema, prefix), limit))
    described = [describe(claim) for claim in claims]
    if as_json:
        typer.echo(json.dumps(described, indent=2))
    else:
        _print(described)


def describe(claim: Listed) -> dict[str, Any]:
    """Return a claim as JSON has it: times in UTC, `null` where there is none."""
    return {
        "key": short(claim.key),
        "scope": short(claim.scope),
        "status": claim.status.name.lower(),
        "mode": claim.mode.value,
        "token": claim.token,
        "created_at": _time(claim.created_at),
        "lease_expires_at": _time(claim.lease_expires_at),
        "expires_at": _time(claim.expires_at),
        "answer_status": claim.answer_status,
        "answer_bytes": claim.answer_bytes,
    }


async def _list(url: str, tables: Tables, limit: int) -> Sequence[Listed]:
    refuse_missing_file(url)
    async with connected(url, tables) as store:
        await store.check()
        return await store.run(list_claims(limit), writes=False)


def _time(seconds: float | None) -> str | None:
    if seconds is None or math.isinf(seconds):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _print(described: Sequence[dict[str, Any]]) -> None:
    if not described:
        typer.echo("no claims")
        return
    table = Table(box=box.SIMPLE_HEAD)
    for name in COLUMNS:
        table.add_column(name.replace("_", " "), no_wrap=True)
    for claim in described:
        table.add_row(*("" if claim[name] is None else str(claim[name]) for name in COLUMNS))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
