"""Keys, identities and derived keys, for all inputs."""

from __future__ import annotations

import uuid
from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.core.framing import frame
from semel.core.identity import identify
from semel.core.ids import birth_ms, derive_key, is_stale, uuid7
from semel.core.key import parse_header, parse_value
from semel.errors import KeyMalformedError

visible = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
keys = st.text(visible, min_size=1, max_size=255)
ows = st.text(" \t", max_size=3)


def quoted(key: str) -> str:
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.rule("K1", "K2")
@given(key=keys, before=ows, after=ows)
def test_a_quoted_key_comes_back(key: str, before: str, after: str) -> None:
    value = (before + quoted(key) + after).encode()
    assert parse_header([value]) == parse_header([value], strict=True) == key


@pytest.mark.rule("K1", "K2")
@given(key=keys.filter(lambda key: not set(key) & set(',"')), before=ows, after=ows)
def test_a_bare_key_is_the_quoted_one(key: str, before: str, after: str) -> None:
    assert parse_header([(before + key + after).encode()]) == parse_header([quoted(key).encode()])


@pytest.mark.rule("K2")
@given(value=st.one_of(st.binary(max_size=300), st.text('a",\\; \t', max_size=12).map(str.encode)))
def test_a_header_is_a_key_or_refused(value: bytes) -> None:
    try:
        key = parse_header([value])
    except KeyMalformedError:
        return
    assert key is not None
    assert parse_value(key) == key
    assert value.strip(b" \t") in {key.encode(), quoted(key).encode()}


@pytest.mark.rule("K4", "F1")
@given(one=st.lists(st.binary(max_size=6)), other=st.lists(st.binary(max_size=6)))
def test_frames_are_equal_exactly_for_equal_parts(one: list[bytes], other: list[bytes]) -> None:
    assert (frame(*one) == frame(*other)) == (one == other)


parts = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3).map(tuple)


@pytest.mark.rule("K4")
@given(one=parts, other=parts)
def test_scopes_are_equal_exactly_for_equal_parts(
    one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    assert (identify(one, "k") == identify(other, "k")) == (one == other)


@pytest.mark.rule("K5", "C1")
@given(
    born=st.integers(0, (1 << 48) - 1),
    random=st.binary(min_size=10, max_size=10),
    retention=st.integers(1, 10**6),
    allowance=st.integers(0, 1000),
    age=st.integers(-2000, 2 * 10**6),
)
def test_a_uuid7_key_tells_its_age(
    born: int, random: bytes, retention: int, allowance: int, age: int
) -> None:
    key = str(uuid7(born, random))
    assert birth_ms(key) == born
    # A second off the border, where the rounding of epoch seconds says nothing.
    now = born / 1000 + age + 0.5
    assert is_stale(key, now, retention, allowance) == (age >= retention + allowance)


key_parts = st.one_of(
    st.text(max_size=3),
    st.binary(max_size=3),
    st.integers(),
    st.uuids(),
    st.dates(),
    st.datetimes(),
)


def typed(part: object) -> tuple[type, object]:
    return (type(part), part)


@pytest.mark.rule("C1", "P2")
@given(one=st.lists(key_parts, max_size=3), other=st.lists(key_parts, max_size=3))
def test_derived_keys_are_equal_exactly_for_equal_parts(
    one: list[str | int | bytes | uuid.UUID | date | datetime],
    other: list[str | int | bytes | uuid.UUID | date | datetime],
) -> None:
    key = derive_key("n", *one)
    assert parse_header([key.encode()]) == key
    assert len(key) <= 40
    assert (key == derive_key("n", *other)) == (list(map(typed, one)) == list(map(typed, other)))
