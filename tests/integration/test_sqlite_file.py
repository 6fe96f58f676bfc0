"""The file of SQLite: its schema, its migrations, and what its errors say."""

from __future__ import annotations

import ast
import asyncio
import inspect
import math
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from semel.core.model import Mode
from semel.errors import (
    StoreConflictError,
    StoreError,
    StoreSchemaError,
    StoreUnavailableError,
    UsageError,
)
from semel.sqlite import AsyncConnection, AsyncStore
from semel.sqlite.errors import mapped
from semel.store import listing, programs, schema
from semel.store.render import Texts
from semel.store.tables import Tables

if TYPE_CHECKING:
    from semel.store import protocol

# Statements of stores that have an atomic mode, or begin the effect by a program.
NOT_OURS = {
    "claim_fresh",
    "claim_won",
    "claim_open",
    "claim_lock",
    "savepoint",
    "rollback_to",
    "effect_open",
    "effect_outcome",
    "effect_proof",
    "raw",
}


def test_every_statement_of_the_programs_is_there_and_fits_the_schema() -> None:
    named = {
        node.args[0].value
        for module in (listing, programs, schema)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Statement"
        and isinstance(node.args[0], ast.Constant)
    }
    texts = Texts("sqlite", Tables(prefix="shop_"), "named")
    assert len(named) > 10
    assert named - NOT_OURS <= texts.names()

    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(schema.script("sqlite", Tables(prefix="shop_")))
    for rendered in texts._rendered.values():
        plan = connection.execute(f"EXPLAIN {rendered.sql}", dict.fromkeys(rendered.order))
        assert plan.fetchall()
    connection.close()


@pytest.mark.rule("S3")
async def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    store = AsyncStore(tmp_path / "shop.db")
    with pytest.raises(StoreSchemaError, match="run `semel migrate`"):
        await store.check()
    assert await store.migrate() == list(range(1, schema.newest("sqlite") + 1))
    assert await store.migrate() == []
    await store.check()
    await store.aclose()


@pytest.mark.rule("S3")
async def test_a_migrated_schema_is_the_printed_one(tmp_path: Path) -> None:
    tables = Tables(prefix="shop_")
    store = AsyncStore(tmp_path / "shop.db", tables=tables)
    await store.migrate()
    printed = sqlite3.connect(":memory:")
    printed.executescript(schema.script("sqlite", tables))
    catalogue = "SELECT name, sql FROM sqlite_schema ORDER BY name"
    async with store.connection() as connection:
        assert await connection.execute(catalogue) == printed.execute(catalogue).fetchall()
    printed.close()
    await store.aclose()


async def migrate_once(path: Path) -> list[int]:
    store = AsyncStore(path)
    try:
        return list(await store.migrate())
    finally:
        await store.aclose()


@pytest.mark.rule("S3")
def test_of_several_threads_one_migrates(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with ThreadPoolExecutor(6) as threads:
        applied = list(threads.map(lambda _: asyncio.run(migrate_once(path)), range(6)))
    every = list(range(1, schema.newest("sqlite") + 1))
    assert sorted(applied) == [[]] * 5 + [every]


MIGRATE = """
import asyncio, sys
from semel.sqlite import AsyncStore
sys.stdin.readline()
print(len(asyncio.run(AsyncStore(sys.argv[1]).migrate())))
"""


@pytest.mark.rule("S3")
def test_of_several_processes_one_migrates(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MIGRATE, os.fspath(tmp_path / "shop.db")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = sorted(int(process.communicate()[0]) for process in processes)
    assert printed == [0, 0, schema.newest("sqlite")]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("missing/shop.db", "create its folder first"),
        (".", "is a folder: give the path of a file"),
        ("notes.txt", "is not a database of SQLite"),
    ],
)
async def test_a_file_that_can_not_be_used_says_what_to_do(
    tmp_path: Path, path: str, text: str
) -> None:
    (tmp_path / "notes.txt").write_text("nothing that SQLite would know\n" * 100)
    store = AsyncStore(tmp_path / path)
    for use in (store.open, store.check, store.migrate):
        with pytest.raises(StoreUnavailableError, match=text) as caught:
            await use()
        assert "\n" not in str(caught.value)
    with pytest.raises(StoreUnavailableError, match=text):
        await store.unit().tx.execute("SELECT 1")
    with pytest.raises(StoreUnavailableError, match=text), store.link():
        pass
    await store.aclose()


@pytest.mark.parametrize(
    ("code", "text", "expected", "advice"),
    [
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "database is locked", StoreConflictError, "locked"),
        (sqlite3.SQLITE_LOCKED, "database table is locked", StoreConflictError, "locked"),
        (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, "UNIQUE", StoreConflictError, "UNIQUE"),
        (sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error", StoreUnavailableError, "look at the disk"),
        (sqlite3.SQLITE_FULL, "disk is full", StoreUnavailableError, "free space"),
        (sqlite3.SQLITE_CORRUPT, "malformed", StoreUnavailableError, "from a backup"),
        (sqlite3.SQLITE_READONLY, "readonly", StoreUnavailableError, "writable"),
        (sqlite3.SQLITE_ERROR, "no such table: semel_claim", StoreSchemaError, "semel migrate"),
        (sqlite3.SQLITE_ERROR, "near: syntax error", StoreError, "syntax"),
    ],
)
def test_each_error_becomes_ours_and_keeps_its_cause(
    code: int, text: str, expected: type[StoreError], advice: str
) -> None:
    cause = sqlite3.OperationalError(text)
    cause.sqlite_errorcode = code
    with pytest.raises(expected, match=advice) as caught, mapped("shop.db"):
        raise cause
    assert type(caught.value) is expected
    assert caught.value.__cause__ is cause


def test_only_a_commit_that_could_not_be_written_leaves_the_outcome_open() -> None:
    cause = sqlite3.OperationalError("disk I/O error")
    cause.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    for commit in (True, False):
        with pytest.raises(StoreUnavailableError) as caught, mapped("shop.db", commit=commit):
            raise cause
        assert caught.value.outcome_unknown is commit


def test_what_can_not_work_is_refused_before_anything_is_opened() -> None:
    for path in ("", ":memory:", "file:shop.db?mode=ro"):
        with pytest.raises(UsageError):
            AsyncStore(path)
    with pytest.raises(UsageError, match="prefix"):
        AsyncStore("shop.db", tables=Tables(schema="shop"))
    with pytest.raises(UsageError, match="size"):
        AsyncStore("shop.db", size=0)
    with pytest.raises(UsageError, match="busy_timeout"):
        AsyncStore("shop.db", busy_timeout=math.inf)


def test_it_is_a_store_and_a_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store: protocol.AsyncStore[AsyncConnection] = AsyncStore("shop.db")
    assert store.modes == (Mode.JOINED,)
    assert AsyncStore("shop.db").path == str(tmp_path / "shop.db")
    assert list(tmp_path.iterdir()) == []
