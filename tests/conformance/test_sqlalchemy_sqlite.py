"""The SQLAlchemy store passes the suite over SQLite, however transactions begin there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from conformance.harnesses import EngineFileHarness
from semel.core.model import Mode
from semel.testing.conformance import (
    Capabilities,
    Faults,
    Leases,
    StoreConformance,
    Transactions,
)

if TYPE_CHECKING:
    from pathlib import Path

CAPABILITIES = Capabilities(
    modes=(Mode.JOINED,), processes=True, schema=True, clock_can_be_set=True
)


class TestEngineOnFile(StoreConformance):
    capabilities = CAPABILITIES

    @pytest.fixture
    def harness(self, tmp_path: Path) -> EngineFileHarness:
        return EngineFileHarness(tmp_path / "claims.db", "aiosqlite")


class TestEngineWithRecipe(Transactions, Leases, Faults):
    """Only what the recipe touches: how the effect's transaction begins and ends."""

    capabilities = replace(CAPABILITIES, processes=False)

    @pytest.fixture(params=["aiosqlite-recipe", "aiosqlite-autocommit"])
    def harness(self, tmp_path: Path, request: pytest.FixtureRequest) -> EngineFileHarness:
        return EngineFileHarness(tmp_path / "claims.db", request.param)
