"""The psycopg store passes the conformance suite, at each isolation level what it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.harnesses import PsycopgHarness, psycopg_harness
from semel.core.model import Mode
from semel.testing.conformance import (
    Capabilities,
    Contention,
    Faults,
    Leases,
    MismatchedRequests,
    Retention,
    StoreConformance,
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


class TestPsycopg(StoreConformance):
    capabilities = CAPABILITIES

    @pytest.fixture
    def harness(self, postgres_url: str) -> Iterator[PsycopgHarness]:
        with psycopg_harness(postgres_url, "read committed") as harness:
            yield harness


class TestPsycopgRepeatableRead(Contention, Leases, MismatchedRequests, Retention, Faults):
    capabilities = CAPABILITIES

    @pytest.fixture
    def harness(self, postgres_url: str) -> Iterator[PsycopgHarness]:
        with psycopg_harness(postgres_url, "repeatable read") as harness:
            yield harness


class TestPsycopgSerializable(Contention, Leases, MismatchedRequests, Retention, Faults):
    capabilities = CAPABILITIES

    @pytest.fixture
    def harness(self, postgres_url: str) -> Iterator[PsycopgHarness]:
        with psycopg_harness(postgres_url, "serializable") as harness:
            yield harness
