"""The psycopg store passes the conformance suite, at each isolation level what it changes."""

from __future__ import annotations

import pytest

from conformance.harnesses import PsycopgHarness
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
    def harness(self, pg_database: str) -> PsycopgHarness:
        return PsycopgHarness(pg_database)


class TestPsycopgRepeatableRead(Contention, Leases, MismatchedRequests, Retention, Faults):
    capabilities = CAPABILITIES

    @pytest.fixture
    def harness(self, pg_database: str) -> PsycopgHarness:
        return PsycopgHarness(pg_database, "repeatable read")


class TestPsycopgSerializable(Contention, Leases, MismatchedRequests, Retention, Faults):
    capabilities = CAPABILITIES

    @pytest.fixture
    def harness(self, pg_database: str) -> PsycopgHarness:
        return PsycopgHarness(pg_database, "serializable")
