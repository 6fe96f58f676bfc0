"""Versions of Semel's tables: applied in order, once, one process at a time (rule S3)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files

from semel.errors import StoreSchemaError
from semel.store.statement import BEGIN, COMMIT, ROLLBACK, Statement, Steps
from semel.store.tables import Tables


def migrations(dialect: str) -> list[tuple[int, str]]:
    """Return the numbered migrations of a dialect as `(version, sql)`, in order."""
    folder = files("semel.store") / "sql" / dialect / "migrations"
    found = [
        (int(entry.name.split("_")[0]), entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found)


def newest(dialect: str) -> int:
    """Return the version that this code needs."""
    return migrations(dialect)[-1][0]


def script(dialect: str, tables: Tables) -> str:
    """Return the whole schema as SQL, to be run by hand or by another tool."""
    parts = [_schema(tables)] if tables.schema else []
    for version, sql in migrations(dialect):
        parts.append(tables.apply(sql).strip())
        if version:
            table = tables.name("version")  # checked and quoted
            parts.append(f"INSERT INTO {table} (version) VALUES ({version});")  # noqa: S608
    return "\n\n".join(parts) + "\n"


def statements(sql: str) -> list[str]:
    """Split a migration, whose statements end with a semicolon at a line's end."""
    return [part.strip() for part in sql.split(";\n") if part.strip()]


def migrate(dialect: str, tables: Tables) -> Steps[Sequence[int]]:
    """Bring the tables to the newest version in one transaction.

    Returns:
        The versions that were applied now; empty when there was nothing to do.
    """
    yield BEGIN
    try:
        lock = hashlib.sha256(f"semel {tables.name('version')}".encode()).digest()[:8]
        yield Statement("version_lock", {"lock": int.from_bytes(lock, "big", signed=True)})
        if tables.schema:
            yield raw(_schema(tables))
        applied = yield from _apply(dialect, tables)
    except Exception:
        yield ROLLBACK
        raise
    yield COMMIT
    return applied


def _apply(dialect: str, tables: Tables) -> Steps[Sequence[int]]:
    applied: list[int] = []
    current = 0
    for version, sql in migrations(dialect):
        if version and version <= current:
            continue
        for text in statements(tables.apply(sql)):
            yield raw(text)
        if version == 0:
            rows = yield Statement("version_look")
            current = rows[0][0]
        else:
            yield Statement("version_add", {"version": version})
            applied.append(version)
    return applied


def check(dialect: str) -> Steps[None]:
    """Make sure that the tables are as new as this code needs.

    Raises:
        StoreSchemaError: they are missing or older.
    """
    rows = yield Statement("version_look")
    version, needed = rows[0][0], newest(dialect)
    if version < needed:
        message = f"the schema has version {version}, {needed} is needed: run `semel migrate`"
        raise StoreSchemaError(message)


def raw(sql: str) -> Statement:
    """Wrap a text that is not one of the dialect's files; drivers run it as it is."""
    return Statement("raw", {"sql": sql})


def _schema(tables: Tables) -> str:
    return f'CREATE SCHEMA IF NOT EXISTS "{tables.schema}";'
