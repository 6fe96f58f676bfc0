"""What applications and authors of stores test with; it needs pytest.

`FakeClock` is a clock for stores, `StoreConformance` the suite that every store
passes; see `semel.testing.conformance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from semel.testing.clock import FakeClock

if TYPE_CHECKING:
    from semel.testing.conformance import Capabilities, Harness, StoreConformance

# The suite's assertions explain themselves only if pytest rewrites them, and it
# does so only with what is imported later.
pytest.register_assert_rewrite("semel.testing.conformance", "semel.testing.driving")

_SUITE = ("Capabilities", "Harness", "StoreConformance")

__all__ = ["Capabilities", "FakeClock", "Harness", "StoreConformance"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attributes are anything
    """Import the suite where it is asked for: it needs Hypothesis as well."""
    if name not in _SUITE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from semel.testing import conformance  # noqa: PLC0415

    return getattr(conformance, name)
