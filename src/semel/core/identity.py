"""Who claims what: scope and key as digests (rule K4).

A claim is found by two digests of fixed size, so no scope and no key is ever
too long for a column or legible in a table.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias

from semel.core.framing import frame, text
from semel.core.model import Identity
from semel.errors import ScopeMissingError, UsageError


class Shared(Enum):
    """The type of `SHARED`, which is its only member."""

    SHARED = "shared"


SHARED: Final = Shared.SHARED
"""Said explicitly: all callers share one space of keys. No text is equal to it."""

Scope: TypeAlias = str | tuple[str, ...] | Shared


def identify(scope: Scope | None, key: str) -> Identity:
    """Return the identity under which a key is claimed.

    Args:
        scope: the verified principal that the key belongs to, in one part or
            several (tenant and user, say); a text is the same as a tuple of it
            alone.
        key: a checked key; see `semel.core.key`.

    Returns:
        SHA-256 of each. That of the key is over its plain bytes, so that
        `printf %s KEY | sha256sum` finds it.

    Raises:
        ScopeMissingError: there is no scope, no part, or a blank part.
        UsageError: a part is no text.
    """
    return Identity(scope=_scope_digest(scope), key=hashlib.sha256(text(key)).digest())


def lock_id(schema: str, prefix: str, identity: Identity) -> int:
    """Return the number of the advisory lock that stands for an identity.

    It is a signed 64 bit integer, as PostgreSQL wants it. Two identities that
    share one, which is not to be expected, cost a spurious 409.

    Args:
        schema: the schema of Semel's tables.
        prefix: the prefix of their names.
        identity: what is claimed.
    """
    begun = _lock_digest(schema, prefix).copy()
    begun.update(identity.scope + identity.key)
    return int.from_bytes(begun.digest()[:8], "big", signed=True)


@lru_cache(maxsize=64)
def _lock_digest(schema: str, prefix: str) -> hashlib._Hash:
    """Return the digest of the parts that are the same for all claims of a table."""
    empty = bytes(hashlib.sha256().digest_size)  # as long as scope and key
    whole = frame(text(schema), text(prefix), empty, empty)
    return hashlib.sha256(whole[: -2 * len(empty)])


def _scope_digest(scope: Scope | None) -> bytes:
    if isinstance(scope, Shared):
        return hashlib.sha256(frame(b"shared")).digest()
    parts = scope if isinstance(scope, tuple) else (scope,)
    for part in parts:
        if part is not None and not isinstance(part, str):
            raise UsageError(
                f"a scope is a text or a tuple of texts, not {type(part).__name__}: "
                "turn the id of the user or tenant into a string"
            )
    given = tuple(part for part in parts if part and part.strip())
    if not given or len(given) < len(parts):
        raise ScopeMissingError("the scope is empty: nobody owns this key")
    return _parts_digest(given)


@lru_cache(maxsize=1024)
def _parts_digest(parts: tuple[str, ...]) -> bytes:
    return hashlib.sha256(frame(b"scope", *map(text, parts))).digest()
