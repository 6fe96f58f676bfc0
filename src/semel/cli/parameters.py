"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from semel.opening import FORMS
from semel.store.tables import Tables

Store: TypeAlias = Annotated[
    str,
    typer.Option(
        "--store", metavar="URL", envvar="SEMEL_STORE", help=f"Where the claims live: {FORMS}."
    ),
]
Schema: TypeAlias = Annotated[
    str, typer.Option("--schema", metavar="NAME", help="The database schema of the tables.")
]
Prefix: TypeAlias = Annotated[
    str,
    typer.Option("--prefix", metavar="NAME", help="What the names of Semel's tables begin with."),
]

DEFAULT_PREFIX = Tables().prefix
