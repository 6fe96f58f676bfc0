"""What every measured application has in common.

A payment is one row. The caller is known by a bearer token, which a bare handler looks
up as the guard's `scope` does. Each side of a measurement has a caller of its own, so
that its rows can be counted apart from the others'.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

CALLERS = tuple(f"side-{number}" for number in range(16))
TENANTS: Mapping[str, str] = {f"Bearer {caller}": caller for caller in CALLERS}
POOL = 16  # connections, one for each of the load's

SCHEMA = """
CREATE TABLE payment (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    amount integer NOT NULL
);
CREATE TABLE stored (key text PRIMARY KEY, body text NOT NULL);
"""
COUNT = "SELECT tenant, count(*) FROM payment GROUP BY tenant"


class Headers(Protocol):
    """A request's headers, whoever made the class."""

    def __getitem__(self, name: str, /) -> str:
        """Return a header by its name in lower case."""


class WithHeaders(Protocol):
    """A request, whoever made the class."""

    @property
    def headers(self) -> Headers:
        """Its headers."""


def tenant_of(request: WithHeaders) -> str:
    """Return who calls; raises `KeyError` where nobody knows."""
    return TENANTS[request.headers["authorization"]]


def database() -> str:
    """Return the address of the run's own database, `postgresql://…`."""
    return os.environ["SEMEL_BENCH_DATABASE"]


def remembered() -> int:
    """Return how many settled keys the guard is to keep in mind."""
    return int(os.environ["SEMEL_BENCH_REMEMBERED"])
