"""What of an answer is kept, and how it is replayed (rules O1, R1).

An answer is kept where a retry should get it too: a success, a redirect to a
result, or a refusal that the same request would meet again. Its headers are an
allow-list, because a header made for one moment or one client (a cookie, a
date, a rate limit) is wrong in a replay.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from semel.core.encoding import readable
from semel.core.headers import header_name, refuse_injection
from semel.core.model import Answer, NotStored
from semel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semel.core.model import HeaderPairs

MARKER: Final = b"Idempotent-Replayed"

# Says something about who asks or when, not about what was asked.
_MOMENTARY: Final = frozenset({401, 403, 408, 409, 412, 421, 423, 425, 428, 429})
_WITHOUT_CONTENT: Final = frozenset({204, 304})

_COMPACT: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False)

_KEPT: Final = frozenset({b"location", b"etag", b"last-modified", b"link"})
_NEVER: Final = frozenset(
    {
        b"set-cookie",
        b"www-authenticate",
        b"authorization",
        b"date",
        # Hop-by-hop: they describe one connection (RFC 9110, section 7.6.1).
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NEVER_PREFIXES: Final = (b"ratelimit", b"x-ratelimit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storable:
    """Which statuses are stored, as rule O1 says unless told otherwise.

    By default 2xx, 303, and the 4xx that the same request would always get.

    Attributes:
        also: statuses to store in addition.
        never: statuses not to store.
    """

    also: frozenset[int] = frozenset()
    never: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Refuse what is no final status, or stands on both sides (`UsageError`)."""
        if not all(200 <= status <= 599 for status in self.also | self.never):  # noqa: PLR2004
            raise UsageError("final statuses are 200 to 599: nothing else can be stored")
        if both := self.also & self.never:
            raise UsageError(f"status {min(both)} can not be stored and not stored")

    def is_storable(self, status: int) -> bool:
        """Say whether an answer of this status is final for its key."""
        if status in self.also or status in self.never:
            return status in self.also
        match status // 100:
            case 2:
                return True
            case 3:
                # The other redirects repeat the request, and its key, elsewhere.
                return status == 303  # noqa: PLR2004
            case 4:
                return status not in _MOMENTARY
            case _:
                return False


def keep_headers(headers: HeaderPairs, extra: frozenset[bytes] = frozenset()) -> HeaderPairs:
    """Return the pairs that are stored, with order and duplicates kept.

    Content-*, Location, ETag, Last-Modified and Link are.

    Args:
        headers: the raw pairs of the application's answer.
        extra: names to keep in addition, in any case; see `extra_headers`.

    Raises:
        HeaderMalformedError: a kept pair holds CR, LF or NUL.
        UsageError: `extra` names a header that is never replayed.
    """
    names = _kept(extra)
    kept = tuple(
        [
            (name, value)
            for name, value in headers
            if (lower := name.lower()) in names or lower.startswith(b"content-")
        ]
    )
    refuse_injection(kept)
    return kept


@lru_cache(maxsize=64)
def _kept(extra: frozenset[bytes]) -> frozenset[bytes]:
    return _KEPT | extra_headers(extra)


def extra_headers(names: Iterable[bytes]) -> frozenset[bytes]:
    """Return names of headers to keep in lower case, once they are found harmless.

    Raises:
        UsageError: a name is no header name, or one that must never be
            replayed: cookies, credentials, Date, hop-by-hop, rate limits.
    """
    checked = frozenset(header_name(name.decode("latin-1")) for name in names)
    for name in checked:
        if name in _NEVER or name.startswith(_NEVER_PREFIXES):
            raise UsageError(
                f"{name.decode()} was meant for the first answer: it is never replayed"
            )
    return checked


def pack_headers(headers: HeaderPairs) -> bytes:
    """Return header pairs as they are stored: compact JSON of Latin-1 texts.

    Raises:
        HeaderMalformedError: a pair holds CR, LF or NUL.
    """
    refuse_injection(headers)
    texts = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]
    return _COMPACT.encode(texts).encode("ascii")


def unpack_headers(packed: bytes) -> HeaderPairs:
    """Return the pairs that `pack_headers` packed, byte for byte."""
    return tuple(
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in json.loads(packed)
    )


def replay(
    answer: Answer,
    accept_encoding: bytes | None,
    *,
    marker: bytes = MARKER,
    replay_status: int | None = None,
) -> Answer | NotStored:
    """Turn a stored answer into the one that a retry gets.

    Status and body are the stored ones. A replay is marked, is not to be
    cached, and has the right Content-Length. A body in an encoding that this
    client does not accept is decoded.

    Args:
        answer: the stored answer.
        accept_encoding: the request's Accept-Encoding, several lines joined.
        marker: the name of the header that says `true` on a replay.
        replay_status: replaces 201 in a replay (200, say: nothing was created).

    Returns:
        The answer, or `NotStored` where there is no body, or none that this
        client could read.
    """
    if answer.body is None:
        return NotStored(answer.status)
    stored = readable(answer.headers, answer.body, accept_encoding)
    if stored is None:
        return NotStored(answer.status)
    headers, body = stored
    status = replay_status if replay_status and answer.status == 201 else answer.status  # noqa: PLR2004
    fixed = {b"content-length", b"cache-control", marker.lower()}
    replayed = [pair for pair in headers if pair[0].lower() not in fixed]
    if status in _WITHOUT_CONTENT:
        body = b""
    else:
        replayed.append((b"content-length", b"%d" % len(body)))
    replayed += [(b"cache-control", b"no-store"), (marker.lower(), b"true")]
    return Answer(status, tuple(replayed), body)
