"""What is measured: the figures of the speed rules (B1 to B9 of docs/rules.md) and their bars.

A figure is a number for each round; its value is their median, its spread the lowest
and the highest. Whether a bar is met is decided by the median alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PLACES = 3


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of figure.

    Attributes:
        name: its key in the results.
        rule: the rule that asks for it.
        what: what it says.
        unit: `µs` or `ms`; empty for ratios and counts.
        at_least: the bar that it must not be below; `None` where there is none.
        at_most: the bar that it must not be above; `None` where there is none.
    """

    name: str
    rule: str
    what: str
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    def is_met(self, value: float) -> bool | None:
        """Say whether a value meets the bar; `None` where there is no bar."""
        if self.at_least is not None:
            return value >= self.at_least
        if self.at_most is not None:
            return value <= self.at_most
        return None

    @property
    def bar(self) -> str:
        """The bar in words; a dash where the figure is only published."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g} {self.unit}".rstrip()
        return f"≤ {self.at_most:g} {self.unit}".rstrip() if self.at_most is not None else "-"


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("B1_bare_ratio", "B1", "the lower of asyncpg and SQLAlchemy below", at_least=0.70),
        Kind("B1_bare_ratio_asyncpg", "B1", "guarded ÷ bare, asyncpg", at_least=0.70),
        Kind(
            "B1_bare_ratio_sqlalchemy",
            "B1",
            "guarded ÷ bare, SQLAlchemy's ORM on asyncpg",
            at_least=0.70,
        ),
        Kind(
            "B1_idemkit_ratio", "B1", "guarded ÷ idemkit's middleware, asyncpg both", at_least=2.5
        ),
        Kind("B1_bare_ratio_psycopg", "B1", "guarded ÷ bare, psycopg"),
        Kind("B1_bare_ratio_sqlalchemy_psycopg", "B1", "guarded ÷ bare, SQLAlchemy on psycopg"),
        Kind(
            "B1_bare_ratio_fastapi",
            "B1",
            "`route_class` ÷ plain route, FastAPI with SQLAlchemy on asyncpg",
        ),
        Kind(
            "B1_autocommit_ratio_asyncpg",
            "B1",
            "guarded ÷ one INSERT without a transaction, asyncpg",
        ),
        Kind(
            "B1_autocommit_ratio_psycopg",
            "B1",
            "guarded ÷ one INSERT without a transaction, psycopg",
        ),
        Kind(
            "B2_overhead_fresh",
            "B2",
            "the guard on a fresh key, memory store, its own mode (joined)",
            "µs",
            None,
            60,
        ),
        Kind(
            "B2_overhead_replay",
            "B2",
            "a replay, memory store, less the bare request",
            "µs",
            None,
            60,
        ),
        Kind("B2_overhead_fresh_atomic", "B2", "the same as fresh, in atomic mode", "µs"),
        Kind("B2_overhead_passing", "B2", "the guard on a request it does not guard", "µs"),
        Kind("B3_one_read_asyncpg", "B3", "remembered replay ÷ bare read, asyncpg", at_least=0.8),
        Kind("B3_one_read_psycopg", "B3", "remembered replay ÷ bare read, psycopg", at_least=0.8),
        Kind(
            "B3_one_read_sqlalchemy",
            "B3",
            "remembered replay ÷ bare read, SQLAlchemy on asyncpg",
            at_least=0.8,
        ),
        Kind("B3_elsewhere_asyncpg", "B3", "other replay ÷ bare read, asyncpg", at_least=0.4),
        Kind("B3_elsewhere_psycopg", "B3", "other replay ÷ bare read, psycopg", at_least=0.4),
        Kind(
            "B3_elsewhere_sqlalchemy",
            "B3",
            "other replay ÷ bare read, SQLAlchemy on asyncpg",
            at_least=0.4,
        ),
        Kind("B8_fingerprint_ratio", "B8", "fingerprint ÷ lossy one, 2 kB order", at_most=1.5),
        Kind("B8_fingerprint_ratio_text", "B8", "the same, nearly all text"),
        Kind("B8_fingerprint_ratio_numbers", "B8", "the same, nearly all numbers"),
        Kind("B8_raw_digest", "B8", "an identical 2 kB body recognised", "µs", None, 10),
        Kind("B9_import", "B9", "`import semel` in a new process", "ms", None, 50),
        Kind("B9_import_names", "B9", "the same, and every name of `semel.__all__`", "ms"),
        Kind("B9_third_party", "B9", "modules of others that `import semel` loads", at_most=0),
    )
}

# What the rules ask for beside that, and why there is no number.
NOT_MEASURED: Mapping[str, tuple[str, str]] = {
    "B2_idemkit_ratio": ("B2", "Semel has no Redis store yet, and no leased mode."),
    "B4": ("B4", "Acquire at 10⁷ claims and the purge: no benchmark yet."),
    "B5": ("B5", "Semel has no retry wrapper yet."),
    "B6": ("B6", "Semel has no inbox and no relay yet."),
    "B7": ("B7", "Semel has no operations yet."),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure.

    Attributes:
        kind: which one.
        values: one for each round.
        sides: what stands behind it: for each side of a ratio its medians.
    """

    kind: Kind
    values: Sequence[float]
    sides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    def as_result(self) -> dict[str, Any]:
        """Return it as the results keep it."""
        value = round(self.value, PLACES)
        return {
            "rule": self.kind.rule,
            "value": value,
            "low": round(min(self.values), PLACES),
            "high": round(max(self.values), PLACES),
            "unit": self.kind.unit,
            "bar": self.kind.bar,
            "met": self.kind.is_met(value),
            "rounds": [round(each, PLACES) for each in self.values],
            "sides": self.sides,
        }


def lower(one: Figure, other: Figure, name: str) -> Figure:
    """Return the figure with the lower value, under another name."""
    lowest = one if one.value <= other.value else other
    return Figure(KINDS[name], lowest.values, lowest.sides)
