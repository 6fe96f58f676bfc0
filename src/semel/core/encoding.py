"""Give a stored body to a client that may not read its encoding (rule R1).

A body was encoded for the client of the first request. A retry may come from
another one, or through another proxy, and its Accept-Encoding decides (RFC
9110, section 12.5.3).
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

from semel.core.headers import values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.core.model import HeaderPairs

MAX_DECODED: Final = 16 * 1024 * 1024

_QVALUE: Final = re.compile(rb"[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*")

# How zlib is told what to expect: gzip; zlib's own frame; no frame at all, which
# some servers send as "deflate" (RFC 9110, section 8.4.1.2, notes it).
_WINDOWS: Final = {b"gzip": (31,), b"deflate": (15, -15)}

# They describe the encoded bytes, and would be wrong of the decoded ones.
_OF_ENCODED: Final = frozenset({b"content-encoding", b"content-digest", b"content-md5"})


def readable(
    headers: HeaderPairs, body: bytes, accept_encoding: bytes | None
) -> tuple[HeaderPairs, bytes] | None:
    """Return headers and body in a form that the client accepts.

    Args:
        headers: the stored pairs, maybe with Content-Encoding.
        body: the stored bytes.
        accept_encoding: the request's Accept-Encoding. Without one every
            encoding is acceptable, but the body is decoded if it can be: such
            clients are simple ones.

    Returns:
        What was given, if the client accepts it; else the body decoded, at most
        to 16 MiB, without the headers and the strong ETag of the encoded bytes.
        `None` where that is not possible, or where the client refuses it.
    """
    codings = _codings(b",".join(values_of(headers, b"content-encoding")))
    accepted = _accepted(accept_encoding or b"")
    if all(accepted.get(coding, accepted[b"*"]) for coding in codings):
        return headers, body
    decoded = _decode(body, codings)
    if decoded is None:
        return (headers, body) if accept_encoding is None else None
    if not accepted[b"identity"]:
        return None
    return tuple(pair for pair in headers if not _is_of_encoded(*pair)), decoded


def _codings(value: bytes) -> list[bytes]:
    names = [_name(item) for item in value.split(b",")]
    return [name for name in names if name not in {b"", b"identity"}]


def _name(text: bytes) -> bytes:
    name = text.strip(b" \t").lower()
    return name.removeprefix(b"x-") if name == b"x-gzip" else name


def _accepted(value: bytes) -> dict[bytes, bool]:
    """Return what the client says of each coding, of `*` and of `identity`."""
    said = {}
    for item in value.split(b","):
        name, semicolon, parameter = item.partition(b";")
        weight = _QVALUE.fullmatch(parameter.lower())
        # A weight that nobody understands is no consent.
        said[_name(name)] = float(weight[1]) > 0 if weight else not semicolon
    identity = said.get(b"identity", said.get(b"*", True))
    return {b"*": False, **said, b"identity": identity}


def _decode(body: bytes, codings: Sequence[bytes]) -> bytes | None:
    decoded: bytes | None = body
    for coding in reversed(codings):  # the one that was applied last comes off first
        windows = _WINDOWS.get(coding, ())
        if decoded:
            tries = (_inflate(decoded, window) for window in windows)
            decoded = next((result for result in tries if result is not None), None)
    return decoded


def _inflate(body: bytes, window: int) -> bytes | None:
    inflater = zlib.decompressobj(window)
    try:
        decoded = inflater.decompress(body, MAX_DECODED + 1)
    except zlib.error:
        return None
    whole = inflater.eof and not inflater.unused_data
    return decoded if whole and len(decoded) <= MAX_DECODED else None


def _is_of_encoded(name: bytes, value: bytes) -> bool:
    name = name.lower()
    return name in _OF_ENCODED or (name == b"etag" and not value.startswith(b"W/"))
