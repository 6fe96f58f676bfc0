"""Scope and key as digests, and the lock that stands for both."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from semel.core.framing import frame, text
from semel.core.identity import SHARED, identify, lock_id
from semel.errors import ScopeMissingError, UsageError


@pytest.mark.rule("K4")
def test_an_identity_is_two_digests_of_fixed_size() -> None:
    identity = identify("shop-1", "abc")
    assert (len(identity.scope), len(identity.key)) == (32, 32)
    assert identity.key == hashlib.sha256(b"abc").digest()
    assert identify("shop-1", "abc") == identity


@pytest.mark.rule("K4")
def test_scope_parts_keep_their_borders() -> None:
    scopes: list[Any] = [
        ("a", "bc"),
        ("ab", "c"),
        ("abc",),
        ("a", "b", "c"),
        "shared",
        "scope",
        ("scope", "abc"),
        SHARED,
        "a\udc80",
    ]
    assert len({identify(scope, "k").scope for scope in scopes}) == len(scopes)


@pytest.mark.rule("K4")
def test_a_text_is_the_same_scope_as_a_tuple_of_it_alone() -> None:
    assert identify("shop-1", "k") == identify(("shop-1",), "k")


@pytest.mark.rule("K4")
@pytest.mark.parametrize("scope", ["", " ", "\t", (), ("",), ("a", ""), ("", "a"), None, (None,)])
def test_an_empty_scope_is_refused(scope: object) -> None:
    with pytest.raises(ScopeMissingError):
        identify(scope, "k")  # type: ignore[arg-type]


@pytest.mark.rule("K4")
@pytest.mark.parametrize("scope", [7, b"shop-1", ("a", 7), ["a"]])
def test_a_scope_that_is_no_text_is_a_mistake_of_the_application(scope: object) -> None:
    with pytest.raises(UsageError, match="a scope is a text"):
        identify(scope, "k")  # type: ignore[arg-type]


@pytest.mark.rule("A3")
def test_a_lock_hashes_schema_prefix_scope_and_key() -> None:
    one, other = identify("s", "k"), identify("s", "l")
    locks = [
        lock_id("public", "semel_", one),
        lock_id("public", "semel_", other),
        lock_id("public", "semel_", identify("t", "k")),
        lock_id("public", "semel", one),
        lock_id("publics", "emel_", one),
    ]
    assert len(set(locks)) == len(locks)
    assert all(-(1 << 63) <= lock < 1 << 63 for lock in locks)
    assert lock_id("public", "semel_", one) == locks[0]


@pytest.mark.rule("A3")
def test_locks_use_the_whole_signed_range() -> None:
    locks = [lock_id("public", "semel_", identify("s", str(n))) for n in range(64)]
    assert min(locks) < 0 < max(locks)


@pytest.mark.rule("K4", "F1")
def test_a_frame_keeps_every_border() -> None:
    framed = [
        frame(),
        frame(b""),
        frame(b"", b""),
        frame(b"ab"),
        frame(b"a", b"b"),
        frame(b"ab", b""),
        frame(b"", b"ab"),
        frame(frame(b"a"), b"b"),
        frame(frame(b"a", b"b")),
    ]
    assert len(set(framed)) == len(framed)


def test_a_text_for_a_frame_never_fails() -> None:
    assert text("é") == b"\xc3\xa9"
    assert text("\udc80") == b"\xed\xb2\x80"
