"""The memory store passes the conformance suite."""

from __future__ import annotations

import pytest

from semel.core.model import Mode
from semel.testing.conformance import Capabilities, MemoryHarness, StoreConformance


class TestMemory(StoreConformance):
    examples = 100
    capabilities = Capabilities(
        modes=(Mode.JOINED, Mode.ATOMIC), concurrent=True, clock_can_be_set=True
    )

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness(interleave=True)
