"""Keys that carry their birth time, and derived keys."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from semel.core.ids import birth_ms, derive_key, is_stale, uuid7
from semel.errors import UsageError

BORN = 0x017F22E279B0


@pytest.mark.rule("C1")
def test_a_uuid7_is_the_one_of_the_rfc() -> None:
    # RFC 9562, appendix A.6: rand_a 0xCC3, rand_b 0x18C4DC0C0C07398F.
    random = (0xCC3 << 62 | 0x18C4DC0C0C07398F).to_bytes(10, "big")
    assert str(uuid7(BORN, random)) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@pytest.mark.rule("C1")
def test_all_74_random_bits_are_used() -> None:
    made = {uuid7(BORN, (1 << bit).to_bytes(10, "big")) for bit in range(74)}
    assert len(made) == 74
    for each in made | {uuid7(0, bytes(10)), uuid7((1 << 48) - 1, b"\xff" * 10)}:
        assert (each.version, each.variant) == (7, uuid.RFC_4122)


@pytest.mark.parametrize(
    ("now_ms", "random"), [(-1, bytes(10)), (1 << 48, bytes(10)), (0, bytes(9)), (0, bytes(11))]
)
def test_a_uuid7_is_made_of_the_right_amount(now_ms: int, random: bytes) -> None:
    with pytest.raises(UsageError, match="48 bits"):
        uuid7(now_ms, random)


@pytest.mark.rule("K5")
@pytest.mark.parametrize(
    ("key", "born"),
    [
        ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", BORN),
        ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", BORN),
        ("017f22e2-79b0-4cc3-98c4-dc0c0c07398f", None),  # version 4
        ("017f22e2-79b0-7cc3-c8c4-dc0c0c07398f", None),  # another variant
        ("017f22e279b07cc398c4dc0c0c07398f", None),
        ("x017f22e2-79b0-7cc3-98c4-dc0c0c07398f", None),
        ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f\n", None),
        ("order-1", None),
    ],
)
def test_the_birth_of_a_key(key: str, born: int | None) -> None:
    assert birth_ms(key) == born


@pytest.mark.rule("K5")
def test_a_key_is_stale_once_it_is_older_than_retention_and_allowance() -> None:
    key = str(uuid7(1_000_000, bytes(10)))  # born at second 1000
    assert not is_stale(key, 1070.0, 60.0, 10.0)
    assert is_stale(key, 1070.001, 60.0, 10.0)
    assert not is_stale(key, 0.0, 60.0, 10.0)
    assert not is_stale("order-1", 1e12, 60.0, 10.0)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 1


@pytest.mark.rule("C1", "P2")
def test_a_derived_key_is_deterministic_opaque_and_short() -> None:
    key = derive_key("refund", "order-1", 7)
    assert key == derive_key("refund", "order-1", 7) == "bwvw7pqqpvefcfxzoozax2jxkkqgusz2"
    assert re.fullmatch(r"[a-z2-7]{32}", key)


@pytest.mark.rule("C1", "P2")
def test_parts_of_different_types_or_borders_never_meet() -> None:
    id_ = uuid.UUID("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")
    parts: list[tuple[Any, ...]] = [
        (),
        ("",),
        ("", ""),
        ("a", "bc"),
        ("ab", "c"),
        ("abc",),
        (b"abc",),
        (1,),
        ("1",),
        (-1,),
        (255,),
        (-256,),
        (10**5000,),
        (id_,),
        (str(id_),),
        (id_.bytes,),
        (date(2026, 1, 1),),
        ("2026-01-01",),
        (datetime(2026, 1, 1, tzinfo=UTC),),
        (datetime(2026, 1, 1),),  # noqa: DTZ001 - a naive one, on purpose
    ]
    keys = {derive_key("n", *each) for each in parts} | {derive_key("m"), derive_key("na")}
    assert len(keys) == len(parts) + 2


@pytest.mark.rule("C1")
def test_what_is_equal_derives_the_same_key() -> None:
    moscow = timezone(timedelta(hours=3))
    assert derive_key("n", datetime(2026, 1, 1, 3, tzinfo=moscow)) == derive_key(
        "n", datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert derive_key("n", Colour.RED, Size.BIG) == derive_key("n", "red", 1)


@pytest.mark.rule("C1")
@pytest.mark.parametrize("part", [1.5, True, None, ["a"], object()])
def test_a_part_without_one_spelling_is_refused(part: object) -> None:
    with pytest.raises(UsageError, match="can not be derived"):
        derive_key("n", part)  # type: ignore[arg-type]


@pytest.mark.rule("C1")
def test_a_derived_key_needs_a_namespace() -> None:
    with pytest.raises(UsageError, match="kind of operation"):
        derive_key("", 1)
