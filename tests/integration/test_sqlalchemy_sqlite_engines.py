"""Which engines on SQLite a store works on, and which it refuses and why (rules S1, S2)."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool, StaticPool

from orm import DECLINED, FAILED, PAID, Payment, Shop, file_engine, orm_shop
from semel.core.model import Mode
from semel.core.options import Options
from semel.errors import (
    StoreSchemaError,
    UsageError,
)
from semel.guard import AsyncGuard
from semel.sqlalchemy import AsyncStore, async_sessionmaker, lending
from semel.store.tables import Tables


@pytest.mark.rule("S1", "S2")
@pytest.mark.parametrize(
    ("url", "options", "advice"),
    [
        ("sqlite+aiosqlite://", {}, "in memory"),
        ("sqlite+aiosqlite:///:memory:", {}, "in memory"),
        ("sqlite+aiosqlite:///file::memory:?cache=shared&uri=true", {}, "in memory"),
        (
            "sqlite+aiosqlite:///file:shop?mode=memory&uri=true",
            {"poolclass": AsyncAdaptedQueuePool},
            "in memory",
        ),
        ("sqlite+aiosqlite:///file:shop.db?uri=true", {}, "not a URI"),
        ("sqlite+aiosqlite:///shop.db", {"poolclass": StaticPool}, "leave poolclass out"),
    ],
)
def test_engines_that_can_not_keep_the_promise_are_refused(
    url: str, options: dict[str, Any], advice: str
) -> None:
    with pytest.raises(UsageError, match=advice) as refused:
        AsyncStore(create_async_engine(url, **options))
    assert "StaticPool" in str(refused.value) or "sqlite+aiosqlite:///shop.db" in str(refused.value)


@pytest.mark.rule("S1", "S2")
def test_other_databases_and_drivers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="create_async_engine"):
        AsyncStore(create_engine("sqlite:///shop.db"))  # type: ignore[arg-type]
    engine = file_engine("shop.db")
    with pytest.raises(UsageError, match="no schemas"):
        AsyncStore(engine, tables=Tables(schema="shop"))
    monkeypatch.setattr(engine.dialect, "driver", "other")
    with pytest.raises(UsageError, match="'other' is not supported: use create_async_engine"):
        AsyncStore(engine)
    monkeypatch.setattr(engine.dialect, "name", "oracle")
    with pytest.raises(UsageError, match=r"'oracle' .*asyncpg, .*psycopg or sqlite\+aiosqlite"):
        AsyncStore(engine)


@pytest.mark.rule("S2", "A2")
async def test_the_only_mode_is_joined(tmp_path: Path) -> None:
    store = AsyncStore(file_engine(tmp_path / "shop.db"))
    assert (store.dialect, store.modes) == ("sqlite", (Mode.JOINED,))
    assert AsyncGuard(store).mode is Mode.JOINED
    with pytest.raises(UsageError, match="does not support mode atomic; it supports: joined"):
        AsyncGuard(store, Options(mode=Mode.ATOMIC))


async def test_a_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = create_async_engine("sqlite+aiosqlite:///shop.db")
    store = AsyncStore(engine, owned=True)
    monkeypatch.chdir("/")
    await store.open()
    await store.aclose()
    assert (tmp_path / "shop.db").exists()


@pytest.mark.rule("W2", "S2")
async def test_connections_to_another_file_are_refused(tmp_path: Path) -> None:
    """Effect and completion could not be one commit."""

    async def elsewhere(*_: Any, **__: Any) -> aiosqlite.Connection:
        return await aiosqlite.connect(tmp_path / "elsewhere.db")

    engine = file_engine(tmp_path / "shop.db", async_creator=elsewhere)
    store = AsyncStore(engine)
    await store.migrate()
    with pytest.raises(UsageError, match="must be in one file"):
        await store.open()
    guard = AsyncGuard(store)
    shop = Shop(engine, async_sessionmaker(engine), guard, str(tmp_path / "shop.db"))
    claim = await shop.claim()
    with pytest.raises(UsageError, match=r"elsewhere\.db"):
        await shop.pay("a")
    await claim.release()
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    await guard.aclose()
    await engine.dispose()


async def test_a_symbolic_link_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    async with orm_shop(str(tmp_path / "link" / "shop.db"), "aiosqlite") as shop:
        claim = await shop.claim()
        await shop.pay("a")
        await claim.complete(PAID)
        assert await shop.effects() == ["a"]


@pytest.mark.rule("S2")
async def test_a_pool_that_keeps_nothing(tmp_path: Path) -> None:
    engine = file_engine(tmp_path / "shop.db", poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(Payment.metadata.create_all)
    store = AsyncStore(engine, owned=True)
    await store.migrate()
    async with AsyncGuard(store) as guard:
        shop = Shop(engine, async_sessionmaker(engine), guard, str(tmp_path / "shop.db"))
        claim = await shop.claim()
        await shop.pay("a")
        await claim.complete(PAID)
        assert await shop.effects() == ["a"]


class Modern(sqlite3.Connection):
    """What Python 3.12 makes of `autocommit=False`, for those before it.

    A transaction is open all the time.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mode: int = True
        self.autocommit = False

    def _get(self) -> int:
        return self.mode

    def _set(self, mode: int) -> None:
        self.mode = mode
        if mode is False and not self.in_transaction:
            self.execute("BEGIN")

    autocommit = property(_get, _set)

    def commit(self) -> None:
        super().commit()
        self._set(self.mode)

    def rollback(self) -> None:
        super().rollback()
        self._set(self.mode)


@pytest.mark.rule("W2", "S2")
@pytest.mark.parametrize("autocommit", [False, True])
async def test_what_python_calls_autocommit_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, autocommit: bool
) -> None:
    arguments: dict[str, Any] = {"autocommit": autocommit}
    if sys.version_info < (3, 12):
        if autocommit:
            pytest.skip("an attribute of Python 3.12")
        monkeypatch.setattr(lending, "LEGACY", -1)
        arguments = {"factory": Modern}
    engine = file_engine(tmp_path / "shop.db", connect_args=arguments)
    async with engine.begin() as connection:
        await connection.run_sync(Payment.metadata.create_all)
    store = AsyncStore(engine, owned=True)
    await store.migrate()
    async with AsyncGuard(store) as guard:
        shop = Shop(engine, async_sessionmaker(engine), guard, str(tmp_path / "shop.db"))
        for answer, effects in ((FAILED, []), (DECLINED, []), (PAID, ["a"])):
            claim = await shop.claim(str(answer.status))
            await shop.pay("a")
            await claim.complete(answer)
            assert await shop.effects() == effects
        async with engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            assert driver._conn.autocommit is autocommit


@pytest.mark.rule("S3")
async def test_tables_that_are_missing_are_named(tmp_path: Path) -> None:
    store = AsyncStore(file_engine(tmp_path / "shop.db"), owned=True)
    for use in (store.open, store.aclose, store.open):
        await use()
    with pytest.raises(StoreSchemaError, match="semel migrate"):
        await store.check()
    await store.aclose()
