"""Group: tables and their versions (rule S3), and what errors mean."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from semel.core.model import Execute, Mode, Replay
from semel.errors import (
    StoreConflictError,
    StoreError,
    StoreSchemaError,
    StoreUnavailableError,
    UsageError,
)
from semel.opening import OpenedStore
from semel.store import schema
from semel.store.programs import look
from semel.store.tables import Tables
from semel.testing.conformance import racing
from semel.testing.conformance.group import Bench, Group, requires
from semel.testing.conformance.harness import Harness, Workbench
from semel.testing.conformance.injection import faults
from semel.testing.driving import ANSWER, Attempt, identity, new_claim

LONGEST = "p" * 41
ILLEGAL = ["", "1a", "a-b", "a b", 'a"b', "a'b", "a;b", "a.b", "ключ", "a\n", "a\0", LONGEST + "p"]


class Schema(Group):
    """Migrations, names, and stores that were not migrated."""

    @pytest.mark.rule("S3")
    @requires("schema")
    async def test_a_migration_can_be_repeated(self, bench: Bench, mode: Mode) -> None:
        """The second one finds nothing to do and harms no claim."""
        await bench.completed(bench.claim(mode=mode))
        before = await bench.dump()
        assert list(await bench.store.migrate()) == []
        await bench.store.check()
        assert await bench.dump() == before

    @pytest.mark.rule("S3")
    @requires("schema")
    async def test_a_migration_applies_every_version_in_order(self, harness: Harness[Any]) -> None:
        """An empty database gets them all."""
        async with _open(harness) as store:
            expected = [number for number, _ in schema.migrations(store.dialect) if number]
            assert list(await store.migrate()) == expected
            await store.check()

    @pytest.mark.rule("S3")
    @requires("schema", "processes")
    async def test_migrations_in_several_processes(self, harness: Harness[Any]) -> None:
        """All succeed, and each version is applied by one of them."""
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(4)
        applied = await asyncio.to_thread(
            racing.in_processes, context, 4, _migrate, harness, barrier
        )
        async with _open(harness) as store:
            expected = [number for number, _ in schema.migrations(store.dialect) if number]
            assert sorted(version for versions in applied for version in versions) == expected
            await store.check()
            await _round_trip(store, harness)

    @pytest.mark.rule("S3")
    @requires("schema")
    async def test_a_fresh_schema_is_a_migrated_one(self, harness: Harness[Any]) -> None:
        """`migrate --sql`, run by hand, makes the same tables."""
        migrated, by_hand = Tables(prefix="migrated_"), Tables(prefix="by_hand_")
        async with _open(harness, migrated) as store:
            await store.migrate()
        async with _open(harness, by_hand) as store:
            for statement in schema.statements(schema.script(store.dialect, by_hand)):
                await harness.execute(statement)
            await store.check()
            assert list(await store.migrate()) == []
            await _round_trip(store, harness)
        description = await harness.describe(migrated)
        assert description
        assert await harness.describe(by_hand) == description

    @pytest.mark.rule("S3")
    @requires("schema")
    async def test_an_interrupted_migration_is_finished_by_the_next(
        self, harness: Harness[Any]
    ) -> None:
        """Whichever statement fails, before or after it ran."""
        for number, fault in enumerate(faults(most=40)):
            tables = Tables(prefix=f"m{number}_")
            async with _open(harness, tables) as store:
                try:
                    await store.run(fault(schema.migrate(store.dialect, tables)))
                except StoreUnavailableError:
                    assert fault.raised
                    whole = (fault.struck, fault.when) == ("commit", "after")
                    assert bool(await store.migrate()) != whole
                await store.check()

    @pytest.mark.rule("S3")
    @requires("schema")
    async def test_missing_tables_are_named(self, harness: Harness[Any], mode: Mode) -> None:
        """The error says what to do, whoever meets it first."""
        async with _open(harness) as store:
            for work in (store.check(), store.run(look(identity("key")), writes=False)):
                with pytest.raises(StoreSchemaError, match="semel migrate"):
                    await work
            attempt = Attempt(store, new_claim(mode=mode))
            with pytest.raises(StoreSchemaError, match="semel migrate"):
                await attempt.acquire()
            await store.migrate()
            await _round_trip(store, harness)

    @pytest.mark.rule("S3")
    @requires("schema")
    async def test_an_old_schema_is_named(self, bench: Bench) -> None:
        """Tables of an older version are not used by guesswork."""
        versions = bench.store.tables.name("version")
        await bench.harness.execute(f"DELETE FROM {versions}")  # noqa: S608 - a checked name
        with pytest.raises(StoreSchemaError, match=r"version 0, .* is needed.*semel migrate"):
            await bench.store.check()

    @pytest.mark.rule("S3")
    @requires("schema")
    async def test_prefixes_keep_claims_apart(self, harness: Harness[Any], mode: Mode) -> None:
        """Two applications may share a database; the longest prefix works too."""
        await harness.prepare()
        for number, prefix in enumerate(("semel_", "_", "Ab1_", LONGEST)):
            bench = Workbench(harness, tables=Tables(prefix=prefix))
            try:
                await bench.open()
                new = bench.claim(body=prefix, mode=mode)
                assert await bench.ask(new) == Execute(token=1)
                await bench.completed(bench.claim(f"{number}", mode=mode), effect=prefix)
                assert await bench.ask(bench.claim(f"{number}", mode=mode)) == Replay(ANSWER)
            finally:
                await bench.aclose()
        assert len(await harness.effects()) == 4

    @pytest.mark.rule("S3")
    @requires("schema")
    async def test_a_schema_of_its_own_or_a_clear_refusal(
        self, harness: Harness[Any], mode: Mode
    ) -> None:
        """Where the database has schemas, Semel's tables may have one."""
        await harness.prepare()
        try:
            bench = Workbench(harness, tables=Tables(schema="Own_1"))
        except UsageError as error:
            assert "schema" in str(error)  # noqa: PT017 - either outcome is right
            return
        try:
            await bench.open()
            await bench.completed(bench.claim(mode=mode), effect="paid")
            assert await bench.ask(bench.claim(mode=mode)) == Replay(ANSWER)
            assert await harness.describe(Tables(schema="Own_1"))
            assert not await harness.describe(Tables())
        finally:
            await bench.aclose()

    @pytest.mark.rule("S3", "Q4")
    @pytest.mark.parametrize("name", ILLEGAL)
    def test_illegal_names_are_refused(self, harness: Harness[Any], name: str) -> None:
        """Nothing that would have to be escaped reaches a statement."""
        with pytest.raises(UsageError):
            harness.store(tables=Tables(prefix=name))
        if name:
            with pytest.raises(UsageError):
                harness.store(tables=Tables(schema=name))


class ErrorMapping(Group):
    """Errors of the driver arrive as Semel's own, with the driver's as the cause."""

    @pytest.mark.rule("S4")
    @requires("schema")
    async def test_a_refused_statement(self, bench: Bench, mode: Mode) -> None:
        """It is neither a conflict, which is tried again, nor an unreachable store."""
        with pytest.raises(StoreError) as caught:
            await bench.store.run(_raw("no statement at all"))
        assert type(caught.value) is StoreError
        assert caught.value.__cause__ is not None
        await bench.completed(bench.claim(mode=mode))

    @pytest.mark.rule("S4", "O8")
    @requires("processes")
    async def test_an_unreachable_store(self, harness: Harness[Any]) -> None:
        """Before the handler ran: the request may come again later."""
        store = harness.unreachable()
        try:
            with pytest.raises(StoreUnavailableError) as caught:
                await Attempt(store, new_claim(mode=store.modes[0])).acquire()
            assert caught.value.__cause__ is not None
        finally:
            await store.aclose()

    @pytest.mark.rule("S4")
    @requires("schema")
    async def test_an_error_leaves_no_connection_behind(self, bench: Bench, mode: Mode) -> None:
        """More errors than connections, in a transaction and outside one."""
        for number in range(24):
            attempt = await bench.held(bench.claim(f"{number}", mode=mode))
            await attempt.begin()
            with pytest.raises(StoreError):
                await attempt.unit.run(_raw("no statement at all"))
            await attempt.close()
            with pytest.raises(StoreError) as caught:
                await bench.store.run(_raw("no statement at all"))
            assert not isinstance(caught.value, StoreConflictError)
        await bench.completed(bench.claim("next", mode=mode))


@asynccontextmanager
async def _open(
    harness: Harness[Any], tables: Tables | None = None
) -> AsyncIterator[OpenedStore[Any]]:
    store = harness.store(tables=tables)
    try:
        yield store
    finally:
        await store.aclose()


async def _round_trip(store: OpenedStore[Any], harness: Harness[Any]) -> None:
    """Use the tables once, and look at every column."""
    bench = Workbench(harness, tables=store.tables)
    try:
        for mode in store.modes:
            await bench.completed(bench.claim(f"{mode}", mode=mode))
            assert await bench.ask(bench.claim(f"{mode}", mode=mode)) == Replay(ANSWER)
    finally:
        await bench.aclose()


def _migrate(harness: Harness[Any], barrier: racing.Barrier) -> Sequence[int]:
    async def run() -> Sequence[int]:
        store = harness.store()
        try:
            await store.open()
            barrier.wait(racing.PATIENCE)
            return list(await store.migrate())
        except BaseException:
            barrier.abort()
            raise
        finally:
            await store.aclose()

    return asyncio.run(run())


def _raw(sql: str) -> Any:  # noqa: ANN401 - a program without a result
    yield schema.raw(sql)
