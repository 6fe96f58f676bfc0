"""Normal forms of queries and form bodies (rules F1, F3).

Everything stays bytes: a form may be in any encoding or in none, and decoding
would merge what differs. `+` and `%20` are one space, `%41` is `A`, but `a` and
`a=` stay two things.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote_to_bytes

from semel.core.framing import frame, text
from semel.core.headers import parse_parameterised, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.core.jsonvalue import Pointer
    from semel.core.model import HeaderPairs

Pairs: TypeAlias = list[tuple[bytes, bytes | None]]

# A lone CR or LF would be a line end for some readers.
_FIELD_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\r\n\0]*)")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a multipart body.

    Attributes:
        headers: names in lower case, values without white space around them.
        content: the exact bytes.
    """

    headers: HeaderPairs
    content: bytes

    @property
    def name(self) -> bytes | None:
        """The name of the form field, or `None` where the part has none."""
        for value in values_of(self.headers, b"content-disposition"):
            disposition = parse_parameterised(value)
            if disposition is not None:
                return disposition.get(b"name")
        return None


def pairs(encoded: bytes) -> Pairs:
    """Split a query or an `application/x-www-form-urlencoded` body.

    As the URL Standard's parser does, but without decoding texts: empty pieces
    are dropped, a broken percent escape stands for itself. A value is `None`
    where there was no equals sign.
    """
    found: Pairs = []
    for piece in filter(None, encoded.replace(b"+", b" ").split(b"&")):
        name, equals, value = piece.partition(b"=")
        found.append((unquote_to_bytes(name), unquote_to_bytes(value) if equals else None))
    return found


def urlencoded(body: bytes, ignore: Sequence[Pointer] = ()) -> bytes:
    """Return the normal form of an urlencoded body: its pairs in their order."""
    ignored = _names(ignore)
    return _framed([pair for pair in pairs(body) if pair[0] not in ignored])


def canonical_query(query: bytes) -> bytes:
    """Return the normal form of a query, in which the order of names says nothing.

    Values of a repeated name keep their order.
    """
    if not query:
        return b""
    return _framed(sorted(pairs(query), key=itemgetter(0)))


def multipart(body: bytes, boundary: bytes, ignore: Sequence[Pointer] = ()) -> bytes | None:
    """Return the normal form of a multipart body, in which the boundary says nothing.

    Returns:
        The parts with their headers and exact contents, framed; `None` where
        the body is malformed and the raw bytes have to stand for themselves.
    """
    found = parts(body, boundary)
    if found is None:
        return None
    ignored = _names(ignore)
    return frame(
        *(
            frame(part.content, *(item for pair in part.headers for item in pair))
            for part in found
            if part.name not in ignored
        )
    )


def parts(body: bytes, boundary: bytes) -> list[Part] | None:
    """Split a multipart body (RFC 2046, section 5.1.1) strictly.

    Returns:
        The parts, or `None` for anything that two readers could split in two
        ways: text before the first or after the last boundary, a delimiter
        followed by something else, a part without an end to its headers, a
        header line that is none.
    """
    # With a line end in front, the first delimiter looks like the others.
    before, *chunks = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if not boundary or before or not chunks or chunks.pop() not in {b"--", b"--\r\n"}:
        return None
    found = []
    for chunk in chunks:
        part = _part(chunk)
        if part is None:
            return None
        found.append(part)
    return found


def _part(chunk: bytes) -> Part | None:
    # The chunk starts behind the boundary, so its headers start behind a line end.
    head, end, content = chunk.partition(b"\r\n\r\n")
    if not end or not head.startswith(b"\r\n"):
        return None
    lines = [_FIELD_LINE.fullmatch(line) for line in head[2:].split(b"\r\n")]
    headers = tuple((line[1].lower(), line[2].strip(b" \t")) for line in lines if line)
    return Part(headers, content) if len(headers) == len(lines) else None


def _names(ignore: Sequence[Pointer]) -> set[bytes | None]:
    # A form has one level: a longer pointer points at nothing in it.
    return {text(pointer[0]) for pointer in ignore if len(pointer) == 1}


def _framed(found: Pairs) -> bytes:
    return frame(
        *(item for name, value in found for item in (name, b"" if value is None else b"=" + value))
    )
