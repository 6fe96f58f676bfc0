"""Keys that carry a time, and keys that are derived (rules K5, C1, P2)."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from datetime import UTC, date, datetime
from typing import Final, TypeAlias

from semel.core.framing import frame, text
from semel.errors import UsageError

KeyPart: TypeAlias = str | int | bytes | uuid.UUID | date | datetime

_RANDOM_BYTES: Final = 10
_DERIVED_BYTES: Final = 20

_UUID7: Final = re.compile(
    r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)


def uuid7(now_ms: int, random: bytes) -> uuid.UUID:
    """Make a version 7 UUID (RFC 9562, section 5.7).

    Args:
        now_ms: milliseconds since 1970, below 2**48.
        random: 10 random bytes, of which 74 bits are used.

    Raises:
        UsageError: an argument is out of range.
    """
    if not 0 <= now_ms < 1 << 48 or len(random) != _RANDOM_BYTES:
        raise UsageError("a UUIDv7 is made of 48 bits of milliseconds and 10 random bytes")
    bits = int.from_bytes(random, "big")
    high = now_ms << 16 | 0x7000 | (bits >> 62 & 0x0FFF)
    low = 1 << 63 | (bits & (1 << 62) - 1)
    return uuid.UUID(int=high << 64 | low)


def birth_ms(key: str) -> int | None:
    """Return the birth time that a key carries.

    Returns:
        Milliseconds since 1970, or `None` where the key is not a UUIDv7 in its
        canonical form.
    """
    match = _UUID7.fullmatch(key)
    return int(match[1] + match[2], 16) if match else None


def is_stale(key: str, now: float, retention: float, allowance: float) -> bool:
    """Say whether a key is provably too old to be claimed anew (rule K5).

    Such a key may have been settled, purged and forgotten. A claim has to live
    for the retention and twice the allowance, so that a key of any age is either
    remembered or stale.

    Args:
        key: the key; one without a birth time is never stale.
        now: epoch seconds.
        retention: seconds for which a settled claim is promised to be kept.
        allowance: seconds by which the client's clock may be wrong.
    """
    born = birth_ms(key)
    return born is not None and now - born / 1000 > retention + allowance


def derive_key(namespace: str, *parts: KeyPart) -> str:
    """Derive a key from what identifies an operation, the same at any time and place.

    Parts of different types or lengths never meet: `1` and `"1"` are two keys,
    and so are `("a", "bc")` and `("ab", "c")`. Aware datetimes are compared as
    moments, naive ones as they are written.

    Args:
        namespace: what kind of operation this is, such as `"refund"`.
        parts: the values that tell one operation from another.

    Returns:
        32 characters of `a` to `z` and `2` to `7`, which say nothing about the
        parts.

    Raises:
        UsageError: the namespace is empty, or a part is of another type. A
            float, for one, has more than one spelling.
    """
    if not namespace:
        raise UsageError("name the kind of operation that the key is derived for")
    framed = frame(text(namespace), *(frame(*_tagged(part)) for part in parts))
    digest = hashlib.sha256(frame(b"semel key", framed)).digest()
    return base64.b32encode(digest[:_DERIVED_BYTES]).decode("ascii").lower()


def _tagged(part: KeyPart) -> tuple[bytes, bytes]:
    match part:
        case str():
            tagged = b"str", text(part)
        case bytes():
            tagged = b"bytes", part
        case int() if not isinstance(part, bool):
            tagged = b"int", part.to_bytes(part.bit_length() // 8 + 1, "big", signed=True)
        case uuid.UUID():
            tagged = b"uuid", part.bytes
        case datetime() if part.utcoffset() is None:
            tagged = b"naive", part.isoformat().encode()
        case datetime():
            tagged = b"moment", part.astimezone(UTC).isoformat().encode()
        case date():
            tagged = b"date", part.isoformat().encode()
        case _:
            raise UsageError(
                f"a key can not be derived from {type(part).__name__}: "
                "use str, int, bytes, UUID, date or datetime"
            )
    return tagged
