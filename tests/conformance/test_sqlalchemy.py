"""The SQLAlchemy store passes the conformance suite, at each isolation level what it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from conformance.harnesses import EngineHarness, own_schema
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


@pytest.fixture(params=["asyncpg", "psycopg"])
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestEngine(StoreConformance):
    capabilities = CAPABILITIES

    @pytest.fixture
    def harness(self, postgres_url: str, driver: str) -> Iterator[EngineHarness]:
        with own_schema(postgres_url, "read committed") as url:
            yield EngineHarness(url, driver)


class TestEngineRepeatableRead(Contention, Leases, Retention, Faults):
    capabilities = WITHOUT_PROCESSES

    @pytest.fixture
    def harness(self, postgres_url: str, driver: str) -> Iterator[EngineHarness]:
        with own_schema(postgres_url, "repeatable read") as url:
            yield EngineHarness(url, driver)


class TestEngineSerializable(Contention, Leases, Retention, Faults):
    capabilities = WITHOUT_PROCESSES

    @pytest.fixture
    def harness(self, postgres_url: str, driver: str) -> Iterator[EngineHarness]:
        with own_schema(postgres_url, "serializable") as url:
            yield EngineHarness(url, driver)

    async def test_unrelated_keys_do_not_collide(self, bench: Workbench[Any], mode: Mode) -> None:
        if mode is Mode.JOINED:
            pytest.skip("SERIALIZABLE may abort joined claims for the sake of unrelated ones")
        await super().test_unrelated_keys_do_not_collide(bench, mode)
