"""Read and check raw header pairs: nothing here knows about claims.

Names are compared without case, values are bytes as they came. Of the header
grammar only what Semel needs is here: a value with parameters (RFC 9110,
section 5.6.6), which is the form of Content-Type and of a form part's
Content-Disposition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from semel.errors import HeaderMalformedError, UsageError

if TYPE_CHECKING:
    from semel.core.model import HeaderPairs

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_NAME = re.compile(_TOKEN)
_HEAD = re.compile(rb"[ \t]*(%b(?:/%b)?)[ \t]*" % (_TOKEN, _TOKEN))
_PARAMETER = re.compile(rb';[ \t]*(?:(%b)=(?:"((?:[^"\\]|\\.)*+)"|(%b))[ \t]*)?' % (_TOKEN, _TOKEN))
_QUOTED_PAIR = re.compile(rb"\\(.)", re.DOTALL)
_SHORT = 200
# What ends a header line, or a C string, ends the header for somebody.
_INJECTION = re.compile(rb"[\r\n\0]")


@dataclass(frozen=True, slots=True)
class Parameterised:
    """A header value with its parameters, such as `text/plain; charset=utf-8`.

    Attributes:
        value: what stands before the parameters, in lower case.
        parameters: names in lower case, values unquoted, in their order.
    """

    value: bytes
    parameters: tuple[tuple[bytes, bytes], ...] = ()

    def get(self, name: bytes) -> bytes | None:
        """Return a parameter's value, or `None` where it is not given."""
        return dict(self.parameters).get(name)

    @property
    def is_json(self) -> bool:
        """Say whether this media type means JSON (RFC 6839, section 3.1)."""
        return self.value == b"application/json" or self.value.endswith(b"+json")


def parse_parameterised(text: bytes) -> Parameterised | None:
    """Parse a value with parameters; `None` where it is malformed.

    A parameter given twice is malformed: two readers could take two values.
    """
    # Nearly all requests of a service have the same few.
    return _parse_again(text) if len(text) <= _SHORT else _parse(text)


@lru_cache(maxsize=128)
def _parse_again(text: bytes) -> Parameterised | None:
    return _parse(text)


def _parse(text: bytes) -> Parameterised | None:
    head = _HEAD.match(text)
    if head is None:
        return None
    parameters: dict[bytes, bytes] = {}
    position = head.end()
    while position < len(text):
        match = _PARAMETER.match(text, position)
        if match is None:
            return None
        position = match.end()
        name, quoted, token = match.groups()
        if name is None:  # an empty parameter, as in "text/plain;"
            continue
        name = name.lower()
        if name in parameters:
            return None
        parameters[name] = token if quoted is None else _QUOTED_PAIR.sub(rb"\1", quoted)
    return Parameterised(head[1].lower(), tuple(parameters.items()))


def values_of(headers: HeaderPairs, name: bytes) -> list[bytes]:
    """Return the values of all lines of one header, in order.

    Args:
        headers: raw pairs, names in any case.
        name: the header's name in lower case.
    """
    length = len(name)  # nearly all others differ by it already
    return [value for key, value in headers if len(key) == length and key.lower() == name]


@lru_cache(maxsize=128)
def header_name(name: str) -> bytes:
    """Return a configured header name in lower case, as it is compared.

    Raises:
        UsageError: it is not a token (RFC 9110, section 5.6.2), so no request
            could carry it.
    """
    raw = name.encode("utf-8", "replace")
    if not _NAME.fullmatch(raw):
        raise UsageError(f"{name!r} is not a header name: use letters, digits and hyphens")
    return raw.lower()


def refuse_injection(headers: HeaderPairs) -> None:
    """Refuse pairs that would end their line and start another (rule R1).

    Raises:
        HeaderMalformedError: a name or a value holds CR, LF or NUL.
    """
    # Joined by nothing that is searched for: one search for all of them.
    if _INJECTION.search(b" ".join([item for pair in headers for item in pair])):
        raise HeaderMalformedError
