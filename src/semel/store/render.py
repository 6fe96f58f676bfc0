"""The SQL texts of a dialect, rendered for one driver's way of passing values.

`sql/<dialect>/<name>.sql` holds one statement with `:name` parameters. Drivers
that number their parameters get `$1, $2, …` and the order of the names; drivers
that name them get the text as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from semel.store.statement import Statement
from semel.store.tables import Tables

PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
COMMENT = re.compile(r"--[^\n]*")

# The time that statements take for the store's own; null but in tests.
NOW = "now"

Style = Literal["numbered", "named"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A statement's text and the names of its parameters in their order."""

    sql: str
    order: tuple[str, ...]


class Texts:
    """All statements of a dialect for one driver and one set of table names."""

    def __init__(
        self,
        dialect: str,
        tables: Tables,
        style: Style,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Render every text once.

        Args:
            dialect: a folder below `sql`.
            tables: the names to put in.
            style: how the driver takes parameters.
            clock: the time that statements should take for the store's own, in
                epoch seconds; tests set it, nobody else.
        """
        self._clock = clock
        self._rendered = {
            name: _render(tables.apply(text), style) for name, text in texts(dialect).items()
        }

    def names(self) -> frozenset[str]:
        """Return the names of all statements."""
        return frozenset(self._rendered)

    def control(self, name: str) -> str:
        """Return the text of a statement that takes no parameters."""
        return self._rendered[name].sql

    def numbered(self, statement: Statement) -> tuple[str, list[Any]]:
        """Return the text and the values in their order."""
        rendered = self._rendered[statement.name]
        params = statement.params
        return rendered.sql, [
            self._now() if name == NOW else params[name] for name in rendered.order
        ]

    def named(self, statement: Statement) -> tuple[str, dict[str, Any]]:
        """Return the text and the values that it names."""
        rendered = self._rendered[statement.name]
        params = statement.params
        return rendered.sql, {
            name: self._now() if name == NOW else params[name] for name in rendered.order
        }

    def _now(self) -> float | None:
        return self._clock() if self._clock else None


def texts(dialect: str) -> dict[str, str]:
    """Return the statements of a dialect by name, as they stand in their files."""
    folder = files("semel.store") / "sql" / dialect
    return {
        entry.name.removesuffix(".sql"): entry.read_text("utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }


def _render(sql: str, style: Style) -> Rendered:
    sql = " ".join(COMMENT.sub("", sql).split())
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match[1]
        if name not in order:
            order.append(name)
        return f"${order.index(name) + 1}" if style == "numbered" else match[0]

    return Rendered(PARAMETER.sub(number, sql), tuple(order))
