"""Options that can not keep the promise are refused when they are made."""

from __future__ import annotations

import math

import pytest

from semel.core.options import Options
from semel.errors import UsageError


@pytest.mark.rule("K3")
def test_the_defaults_guard_post_and_patch() -> None:
    assert Options().methods == {"POST", "PATCH"}
    assert Options().required


@pytest.mark.parametrize(
    "name", ["retention", "lease", "idle_timeout", "max_request_bytes", "max_response_bytes"]
)
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_amounts_are_positive_and_finite(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a positive"):
        Options(**{name: value})  # type: ignore[arg-type]


@pytest.mark.rule("K3")
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE"])
def test_safe_methods_are_never_guarded(method: str) -> None:
    with pytest.raises(UsageError, match=method):
        Options(methods=frozenset({"POST", method}))
    assert Options(methods=frozenset({"PUT", "DELETE"})).methods == {"PUT", "DELETE"}
