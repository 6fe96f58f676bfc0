"""The asyncpg store passes the conformance suite, at each isolation level what it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from conformance.harnesses import AsyncpgHarness, own_schema
from semel.core.model import Mode
from semel.testing.conformance import (
    Capabilities,
    Contention,
    Faults,
    Leases,
    Retention,
    StoreConformance,
    Workbench,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

CAPABILITIES = Capabilities(
    modes=(Mode.ATOMIC, Mode.JOINED),
    processes=True,
    concurrent=True,
    schema=True,
    clock_can_be_set=True,
)
# Starting them takes seconds, and the database can not tell a process from a thread.
WITHOUT_PROCESSES = replace(CAPABILITIES, processes=False)


class TestAsyncpg(StoreConformance):
    capabilities = CAPABILITIES

    @pytest.fixture
    def harness(self, postgres_url: str) -> Iterator[AsyncpgHarness]:
        with own_schema(postgres_url, "read committed") as url:
            yield AsyncpgHarness(url)


class TestAsyncpgRepeatableRead(Contention, Leases, Retention, Faults):
    capabilities = WITHOUT_PROCESSES

    @pytest.fixture
    def harness(self, postgres_url: str) -> Iterator[AsyncpgHarness]:
        with own_schema(postgres_url, "repeatable read") as url:
            yield AsyncpgHarness(url)


class TestAsyncpgSerializable(Contention, Leases, Retention, Faults):
    capabilities = WITHOUT_PROCESSES

    @pytest.fixture
    def harness(self, postgres_url: str) -> Iterator[AsyncpgHarness]:
        with own_schema(postgres_url, "serializable") as url:
            yield AsyncpgHarness(url)

    async def test_unrelated_keys_do_not_collide(self, bench: Workbench[Any], mode: Mode) -> None:
        if mode is Mode.JOINED:
            pytest.skip("SERIALIZABLE may abort joined claims for the sake of unrelated ones")
        await super().test_unrelated_keys_do_not_collide(bench, mode)
