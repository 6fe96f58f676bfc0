"""The conformance suite of stores: every store passes it, or is no store (rule S4).

    class TestMyStore(StoreConformance):
        capabilities = Capabilities(modes=(Mode.JOINED,), processes=True)

        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path / "claims")

See `Harness` for what to write. The tests need pytest-asyncio in its mode
`auto`, Hypothesis, and the marker `rule(*ids)` in the configuration of pytest;
the ids are those of `docs/rules.md`. Each group is a class of its own, so that a
store in the making can begin with one of them.
"""

from __future__ import annotations

from semel.testing.conformance.clocks import ClockIndependence
from semel.testing.conformance.contention import Contention
from semel.testing.conformance.counting import StatementCount
from semel.testing.conformance.differential import Differential
from semel.testing.conformance.faults import Faults
from semel.testing.conformance.fidelity import Fidelity
from semel.testing.conformance.group import Group, requires
from semel.testing.conformance.harness import Capabilities, Harness, Workbench
from semel.testing.conformance.lease import Leases
from semel.testing.conformance.life_cycle import LifeCycle
from semel.testing.conformance.mismatch import MismatchedRequests
from semel.testing.conformance.model import MemoryHarness
from semel.testing.conformance.retention import Retention
from semel.testing.conformance.schema import ErrorMapping, Schema
from semel.testing.conformance.transactions import Transactions

__all__ = [
    "Capabilities",
    "ClockIndependence",
    "Contention",
    "Differential",
    "ErrorMapping",
    "Faults",
    "Fidelity",
    "Group",
    "Harness",
    "Leases",
    "LifeCycle",
    "MemoryHarness",
    "MismatchedRequests",
    "Retention",
    "Schema",
    "StatementCount",
    "StoreConformance",
    "Transactions",
    "Workbench",
    "requires",
]


class StoreConformance(
    LifeCycle,
    Contention,
    Leases,
    MismatchedRequests,
    Retention,
    Fidelity,
    Transactions,
    Faults,
    ClockIndependence,
    Schema,
    ErrorMapping,
    StatementCount,
    Differential,
):
    """All groups."""
