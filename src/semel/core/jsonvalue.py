"""The lossless normal form of a JSON body (rule F2).

Two bodies share a normal form exactly where an exact reader (arbitrary
integers, exact decimals, objects without order) sees one value. It is built
for speed, because every guarded request pays for it: C code parses, C code
renders, and Python runs once for each object and for each number that is not a
plain integer.

- **Numbers** are compared by value. An integer below 10**40 becomes an `int`,
  however it was spelled; any other number becomes a pair such as `(NaN, "1.5")`
  or `(NaN, "1e400")`, which is rendered as `[NaN,"1.5"]`. No body can contain
  that by itself, because a body with NaN is refused. Nothing ever expands
  beyond 40 characters.
- **Objects** are rendered in the order of their names.
- **What no two readers agree on** has no normal form here, and the raw bytes
  stand for it: invalid JSON or UTF-8, NaN and infinities, a name given twice,
  lone surrogates, nesting deeper than `MAX_DEPTH`, exponents of more than 18
  digits (more than `decimal.Decimal` holds).
"""

from __future__ import annotations

import json
import re
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from semel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Pointer: TypeAlias = tuple[str, ...]
Number: TypeAlias = int | tuple[float, str]
Value: TypeAlias = "dict[str, Value] | list[Value] | str | Number | bool | None"

# The same on every machine: far below the interpreter's recursion limit, which
# depends on who called.
MAX_DEPTH: Final = 128

_NAN: Final = float("nan")
_INTEGER_DIGITS: Final = 40
_EXPONENT_DIGITS: Final = 18
_PLAIN_LENGTH: Final = 40

# A body as seen by somebody who only looks for digits and opening brackets.
_OUTLINE: Final = bytes.maketrans(b"123456789{", b"000000000[")
_LONG_NUMBER: Final = b"0" * (_INTEGER_DIGITS + 1)
_TO_STEP: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKET: Final = bytes(set(range(256)) - set(b"[{]}"))

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_ESCAPE: Final = re.compile(r"~[01]")
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")


class _NoNormalFormError(ValueError):
    """Readers would not agree on this body."""


def normal_form(body: bytes, ignore: Sequence[Pointer] = ()) -> bytes | None:
    """Return bytes that are equal exactly for bodies of the same value.

    Args:
        body: the body as it was sent.
        ignore: what is removed before comparing; a pointer to nothing removes
            nothing.

    Returns:
        The normal form, or `None` where the raw bytes have to stand for
        themselves. The cost is linear in the length of the body.
    """
    try:
        value = parse(body)
        if ignore:
            _remove(value, ignore)
        return _ENCODER.encode(value).encode()
    except ValueError:
        return None


def parse(body: bytes) -> Value:
    """Read a body exactly, with numbers in the form that the module describes.

    Raises:
        ValueError: readers would not agree on this body. (Lone surrogates are
            let through here: they are inside a text that nobody may ask for.)
    """
    text = body.decode()
    outline = body.translate(_OUTLINE)
    if outline.count(b"[") > MAX_DEPTH and _depth(body) > MAX_DEPTH:
        raise _NoNormalFormError
    # The interpreter refuses to convert very long integers, and would take
    # quadratic time for it.
    decoder = _EXACT_DECODER if _LONG_NUMBER in outline else _DECODER
    value: Value = decoder.decode(text)
    return value


def parse_pointer(text: str) -> Pointer:
    """Parse a JSON Pointer (RFC 6901) into its unescaped tokens.

    Raises:
        UsageError: it does not start with a slash, has a tilde that is no
            escape, or names the element after the last one (`-`), which no
            body ever has.
    """
    if text and not text.startswith("/"):
        raise UsageError(f"the JSON Pointer {text!r} must start with a slash, as in '/client_time'")
    if _BAD_ESCAPE.search(text):
        raise UsageError(f"the JSON Pointer {text!r} must write a tilde as ~0 and a slash as ~1")
    tokens = tuple(_ESCAPE.sub(_unescape, token) for token in text.split("/")[1:])
    if "-" in tokens:
        raise UsageError(f"the JSON Pointer {text!r} uses '-', which points at nothing")
    return tokens


def resolve(value: Value, pointer: Iterable[str]) -> Value:
    """Return what a pointer points at.

    Raises:
        LookupError: nothing is there.
    """
    for token in pointer:
        value = _child(value, token)
    return value


def _unescape(match: re.Match[str]) -> str:
    return "~" if match[0] == "~0" else "/"


def _child(value: Value, token: str) -> Value:
    if isinstance(value, dict):
        return value[token]
    if isinstance(value, list) and _INDEX.fullmatch(token):
        return value[int(token)]
    raise LookupError


def _remove(value: Value, pointers: Iterable[Pointer]) -> None:
    # Later siblings and deeper places first: a removal then never moves what
    # another pointer still has to find.
    for *parents, last in sorted(pointers, key=_place, reverse=True):
        try:
            parent = resolve(value, parents)
        except LookupError:
            continue
        if isinstance(parent, dict):
            parent.pop(last, None)
        elif isinstance(parent, list) and _INDEX.fullmatch(last):
            del parent[int(last) : int(last) + 1]


def _place(pointer: Pointer) -> list[tuple[int, str]]:
    # Length first puts "10" after "9".
    return [(len(token), token) for token in pointer]


def _depth(body: bytes) -> int:
    """Return how deep the brackets outside of texts are nested.

    Without escaped backslashes and escaped quotes, every other piece between
    quotes is outside of a text. In bytes that are no JSON this counts something
    else, but never less than a parser sees before it gives up.
    """
    pieces = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    steps = b"".join(pieces[::2]).translate(_TO_STEP, _NOT_BRACKET)
    return max(accumulate(array("b", steps)), default=0)


def _exact(text: str) -> Number:
    """Return the normal form of a number that is not written as an integer."""
    if len(text) <= _PLAIN_LENGTH and "e" not in text and "E" not in text:
        plain = text.rstrip("0")
        if plain[-1] != ".":  # as nearly all of them: there is nothing else to do
            return (_NAN, plain)
    return _exact_slowly(text)


def _exact_slowly(text: str) -> Number:
    """Return the normal form of any number that matches JSON's grammar."""
    mantissa, _, exponent = text.replace("E", "e").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("-0")
    if not digits:
        return 0  # whatever its sign and its exponent are
    significant = digits.rstrip("0")
    power = len(digits) - len(significant) - len(fraction)
    if exponent:
        size = exponent.lstrip("+-0")
        if len(size) > _EXPONENT_DIGITS:
            raise _NoNormalFormError
        power += int(f"{'-' if exponent[0] == '-' else ''}0{size}")
    sign = "-" if text[0] == "-" else ""
    if power >= 0 and len(significant) + power <= _INTEGER_DIGITS:
        return int(sign + significant + "0" * power)
    if -_PLAIN_LENGTH < power < 0:
        padded = significant.rjust(1 - power, "0")
        plain = f"{sign}{padded[:power]}.{padded[power:]}"
        if len(plain) <= _PLAIN_LENGTH:
            return (_NAN, plain)
    return (_NAN, f"{sign}{significant}e{power}")


def _object(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NoNormalFormError  # a name given twice
    return members


def _refuse(_constant: str) -> NoReturn:
    raise _NoNormalFormError  # NaN, Infinity, -Infinity


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_exact, parse_constant=_refuse
)
_EXACT_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_exact, parse_int=_exact_slowly, parse_constant=_refuse
)
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":")
)
