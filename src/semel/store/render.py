"""The SQL texts of a dialect, rendered for one driver's way of passing values.

`sql/<dialect>/<name>.sql` holds one statement with `:name` parameters. Drivers
that number their parameters get `$1, $2, …` and the order of the names; drivers
that name them get the text as it stands.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal
from weakref import WeakSet

from semel.store.statement import Statement
from semel.store.tables import Tables

PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
COMMENT = re.compile(r"--[^\n]*")

# Statements without parameters that begin, end or divide the transaction.
CONTROL = frozenset({"begin", "commit", "rollback", "savepoint", "rollback_to"})

# The time that statements take for the store's own; null but in tests.
NOW = "now"

Style = Literal["numbered", "named"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A statement's text and the names of its parameters in their order.

    Attributes:
        prepared: its name on a connection: other versions of Semel, and other tables,
            may share the connection behind a pooler.
        execute: how a script refers to it.
        bare: scripts hold it as it stands; it controls the transaction.
    """

    sql: str
    order: tuple[str, ...]
    prepared: str
    execute: str
    bare: bool


class Texts:
    """All statements of a dialect for one driver and one set of table names.

    Attributes:
        prepared: the driver's connections that know the statements of scripts.
    """

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
        self.prepared: WeakSet[Any] = WeakSet()
        self._clock = clock
        self._rendered = {
            name: _render(name, tables.apply(text), style) for name, text in texts(dialect).items()
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

    def preparations(self, statements: Sequence[Statement]) -> list[str]:
        """Return the texts that name a script's statements to a connection, once."""
        found = (self._rendered[statement.name] for statement in statements)
        return [f"PREPARE {each.prepared} AS {each.sql}" for each in found if not each.bare]

    def script(self, statements: Sequence[Statement]) -> str:
        """Return one text for several statements, whose values stand in it as literals.

        A database writes the text of a failing statement into its log: only digests,
        numbers and Semel's own words may be sent this way.
        """
        return ";".join(map(self._in_script, statements))

    def _in_script(self, statement: Statement) -> str:
        rendered = self._rendered[statement.name]
        if rendered.bare:
            return rendered.sql
        if not rendered.order:
            return rendered.execute
        params = statement.params
        values = [literal(self._now() if name == NOW else params[name]) for name in rendered.order]
        return f"{rendered.execute}({','.join(values)})"

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


def literal(value: object) -> str:
    """Return a value as PostgreSQL's SQL spells it, whatever the server's settings.

    Raises:
        TypeError: a value of a kind that scripts do not carry.
    """
    kind = type(value)
    if kind is bytes:
        return f"E'\\\\x{value.hex()}'"  # type: ignore[attr-defined] # as was just asked
    if value is None:
        return "NULL"
    if kind is int or (kind is float and math.isfinite(value)):  # type: ignore[arg-type]
        return repr(value)
    if kind is str and "\0" not in value:  # type: ignore[operator]
        return _quoted(str(value))
    message = f"no literal for {value!r} in a script"
    raise TypeError(message)


def _quoted(text: str) -> str:
    if "\\" not in text and "'" not in text:
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


def _render(name: str, sql: str, style: Style) -> Rendered:
    sql = " ".join(COMMENT.sub("", sql).split())
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match[1]
        if name not in order:
            order.append(name)
        return f"${order.index(name) + 1}" if style == "numbered" else match[0]

    sql = PARAMETER.sub(number, sql)
    digest = hashlib.sha256(sql.encode()).hexdigest()[:12]
    prepared = f"semel_{name}_{digest}"
    return Rendered(sql, tuple(order), prepared, f"EXECUTE {prepared}", name in CONTROL)
