"""Options that can not keep the promise are refused when they are made."""

from __future__ import annotations

import math
from typing import Any

import pytest

from semel.core.key import BodyField, Header
from semel.core.model import Mode
from semel.core.options import Options
from semel.errors import UsageError


@pytest.mark.rule("K3")
def test_the_defaults_guard_post_and_patch() -> None:
    assert Options().methods == {"POST", "PATCH"}
    assert Options().required


@pytest.mark.parametrize(
    "name", ["retention", "lease", "idle_timeout", "max_request_bytes", "max_response_bytes"]
)
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, "60", True, None])
def test_amounts_are_positive_and_finite(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a positive"):
        Options(**{name: value})


@pytest.mark.rule("K3")
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE"])
def test_safe_methods_are_never_guarded(method: str) -> None:
    with pytest.raises(UsageError, match=method):
        Options(methods=frozenset({"POST", method}))
    assert Options(methods=frozenset({"PUT", "DELETE"})).methods == {"PUT", "DELETE"}


@pytest.mark.rule("K3")
def test_methods_may_be_written_in_any_case() -> None:
    assert Options(methods=frozenset({"put", "Post"})).methods == {"PUT", "POST"}


@pytest.mark.rule("A2")
def test_a_mode_may_be_written_as_text() -> None:
    assert Options(mode="atomic").mode is Mode.ATOMIC  # type: ignore[arg-type]
    assert Options().mode is None
    with pytest.raises(UsageError, match="mode must be one of atomic, joined, leased, or None"):
        Options(mode="quick")  # type: ignore[arg-type]


@pytest.mark.rule("K6")
def test_the_source_of_the_key_is_an_object_or_a_function() -> None:
    for key in (Header("X-Key"), BodyField("/id")):
        assert Options(key=key).key == key
    assert Options(key=lambda _: "k")
    for wrong in ("Idempotency-Key", Header, None):
        with pytest.raises(UsageError, match="key must be Header"):
            Options(key=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["enabled", "required", "strict_key"])
def test_switches_are_true_or_false(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be True or False"):
        Options(**{name: "no"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["methods", "ignore", "fingerprint_headers", "secrets", "keep_headers"]
)
def test_one_text_is_no_collection_of_texts(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a collection"):
        Options(**{name: "POST"})  # type: ignore[arg-type]
