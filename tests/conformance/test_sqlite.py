"""The SQLite store passes the conformance suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.harnesses import SqliteHarness
from semel.core.model import Mode
from semel.testing.conformance import Capabilities, StoreConformance

if TYPE_CHECKING:
    from pathlib import Path


class TestSqlite(StoreConformance):
    capabilities = Capabilities(
        modes=(Mode.JOINED,), processes=True, schema=True, clock_can_be_set=True
    )

    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path / "claims.db")
