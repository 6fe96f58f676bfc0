"""Where Semel's tables live: a schema and a prefix, always checked and quoted."""

from __future__ import annotations

import re
from dataclasses import dataclass

from semel.errors import UsageError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")
TABLE = re.compile(r"\bsemel_(claim|version)(\w*)")


@dataclass(frozen=True, slots=True)
class Tables:
    """The names of Semel's tables (rule S3).

    Attributes:
        schema: a database schema, or "" for the connection's own.
        prefix: what each table's name begins with.

    Raises:
        UsageError: a name that is not 1 to 41 letters, digits and underscores.
    """

    schema: str = ""
    prefix: str = "semel_"

    def __post_init__(self) -> None:
        """Refuse names that would have to be escaped."""
        for what, name in (("schema", self.schema), ("table prefix", self.prefix)):
            if what == "schema" and not name:
                continue
            if not NAME.fullmatch(name):
                message = (
                    f"illegal {what}: use 1 to 41 letters, digits and underscores, "
                    "not starting with a digit"
                )
                raise UsageError(message)

    def name(self, table: str) -> str:
        """Return the quoted, qualified name of `claim`, `version`, …."""
        quoted = f'"{self.prefix}{table}"'
        return f'"{self.schema}".{quoted}' if self.schema else quoted

    def apply(self, sql: str) -> str:
        """Put the names into a statement that was written with the default ones.

        Args:
            sql: the text, in which `semel_claim` means the claim table and
                `semel_claim_expires_at` one of its indexes, which the database
                puts beside its table by itself.
        """

        def replace(match: re.Match[str]) -> str:
            table, rest = match.groups()
            return f'"{self.prefix}{table}{rest}"' if rest else self.name(table)

        return TABLE.sub(replace, sql)
