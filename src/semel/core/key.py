"""Where a request's key comes from, and what a key may look like (K1, K2, K6).

A key is 1 to 255 characters of visible ASCII (0x21 to 0x7E). In a header it may
stand bare or as an RFC 9651 string; both are the same key. Whatever could be
read as two keys, or as another key by somebody else, is refused, and the text
of a refusal names the rule and never repeats the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from semel.core import forms, jsonvalue
from semel.core.headers import header_name, parse_parameterised, values_of
from semel.errors import KeyMalformedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.core.model import HeaderPairs

MAX_LENGTH: Final = 255

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
# RFC 9651, section 4.2.5: only these two escapes, nothing behind the quote.
_STRING: Final = re.compile(r'"((?:[^"\\]|\\["\\])*+)"')
_ESCAPED: Final = re.compile(r'\\(["\\])')


def parse_header(values: Sequence[bytes], *, strict: bool = False) -> str | None:
    r"""Return the key that a request's header carries.

    Args:
        values: the raw values of all lines of that header.
        strict: accept only the quoted form.

    Returns:
        The key without its quotes and escapes, or `None` where there is no
        such header.

    Raises:
        KeyMalformedError: there is more than one line; the value is blank;
            starts with a quote but is not exactly one RFC 9651 string (only
            `\"` and `\\` are escapes, no parameters); is bare but could be a
            joined list; or the key breaks `parse_value`.
    """
    if not values:
        return None
    if len(values) > 1:
        raise KeyMalformedError("the key's header came more than once: send it exactly once")
    value = values[0].strip(b" \t").decode("latin-1")
    if not value:
        raise KeyMalformedError("the key is blank: send a new UUID in double quotes, or no header")
    if value.startswith('"'):
        return parse_value(_unquote(value))
    if strict:
        raise KeyMalformedError("the key must stand in double quotes (an RFC 9651 string)")
    if "," in value:
        raise KeyMalformedError(
            "a bare key must not contain a comma, it could be two keys: send one key, in quotes"
        )
    if '"' in value:
        raise KeyMalformedError(
            "a bare key must not contain a double quote: put the whole key in quotes"
        )
    return parse_value(value)


def parse_value(text: str) -> str:
    """Check a key that did not come from a header: nothing is unquoted.

    Raises:
        KeyMalformedError: it is empty, longer than 255 characters, or holds
            anything but visible ASCII (0x21 to 0x7E).
    """
    if not text:
        raise KeyMalformedError("the key is empty: send 1 to 255 characters of visible ASCII")
    if len(text) > MAX_LENGTH:
        raise KeyMalformedError("the key is longer than 255 characters: send a shorter one")
    if not _VISIBLE.fullmatch(text):
        raise KeyMalformedError(
            "the key contains a space, a control or a non-ASCII character: "
            "send only visible ASCII (0x21 to 0x7E)"
        )
    return text


def short(digest: bytes) -> str:
    """Return the only form in which a key or scope appears in logs and pages."""
    return digest.hex()[:12]


@dataclass(frozen=True, slots=True)
class Header:
    """The key is in a header, by default in the one of the IETF draft."""

    name: str = "Idempotency-Key"

    def __post_init__(self) -> None:
        """Refuse a name that no header can have (`UsageError`)."""
        header_name(self.name)

    def read(self, headers: HeaderPairs, *, strict: bool = False) -> str | None:
        """Return the key; see `parse_header`.

        Raises:
            KeyMalformedError: the header breaks the syntax of a key.
        """
        return parse_header(values_of(headers, header_name(self.name)), strict=strict)


@dataclass(frozen=True, slots=True)
class BodyField:
    """The key is a text inside a JSON body, such as a webhook's event id.

    Attributes:
        pointer: a JSON Pointer (RFC 6901), such as `/event/id`.
    """

    pointer: str

    def __post_init__(self) -> None:
        """Refuse a malformed pointer (`UsageError`)."""
        jsonvalue.parse_pointer(self.pointer)

    def read(self, content_type: bytes | None, body: bytes) -> str | None:
        """Return the key.

        Args:
            content_type: the request's Content-Type; a body without one is read
                as JSON, one of another type holds no key.
            body: the whole body.

        Returns:
            The key, or `None` where the body does not have that field.

        Raises:
            KeyMalformedError: the field is not a text, breaks `parse_value`, or
                can not be found for sure, because readers would not agree on
                the body (see `semel.core.jsonvalue`).
        """
        media = parse_parameterised(content_type) if content_type else None
        if not body or (content_type and not (media and media.is_json)):
            return None
        try:
            value = jsonvalue.resolve(jsonvalue.parse(body), jsonvalue.parse_pointer(self.pointer))
        except ValueError:
            raise KeyMalformedError(
                "the body that holds the key is not JSON that every reader reads alike: "
                "check its syntax, repeated names and nesting"
            ) from None
        except LookupError:
            return None
        if not isinstance(value, str):
            raise KeyMalformedError("the field that holds the key is not a text: send a string")
        return parse_value(value)


@dataclass(frozen=True, slots=True)
class FormField:
    """The key is a field of a form, urlencoded or multipart (rule W8).

    Attributes:
        name: the field's name.
    """

    name: str

    def read(self, content_type: bytes | None, body: bytes) -> str | None:
        """Return the key.

        Args:
            content_type: the request's Content-Type.
            body: the whole body.

        Returns:
            The key, or `None` where the body is no form or lacks that field.

        Raises:
            KeyMalformedError: the field is there more than once, breaks
                `parse_value`, or the multipart body is malformed.
        """
        values = self._values(content_type or b"", body)
        if not values:
            return None
        if len(values) > 1:
            raise KeyMalformedError("the form's field for the key came more than once: send one")
        return parse_value(values[0].decode("latin-1"))

    def _values(self, content_type: bytes, body: bytes) -> list[bytes]:
        name = self.name.encode()
        media = parse_parameterised(content_type)
        if media and media.value == b"application/x-www-form-urlencoded":
            return [value or b"" for key, value in forms.pairs(body) if key == name]
        if media and media.value == b"multipart/form-data":
            parts = forms.parts(body, media.get(b"boundary") or b"")
            if parts is None:
                raise KeyMalformedError("the form that holds the key is malformed: check its parts")
            return [part.content for part in parts if part.name == name]
        return []


KeySource: TypeAlias = Header | BodyField | FormField


def _unquote(value: str) -> str:
    match = _STRING.fullmatch(value)
    if match is None:
        raise KeyMalformedError(
            "a key that starts with a double quote must be exactly one RFC 9651 string: "
            r"close the quote, escape only \" and \\, and send nothing behind it"
        )
    return _ESCAPED.sub(r"\1", match[1])
