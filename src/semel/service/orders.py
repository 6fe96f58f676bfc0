"""What a client may send as a payment, and what is wrong with anything else.

A body is read exactly: `500`, `500.0` and `5e2` are one amount, nothing is
rounded, and `metadata` is kept as the text that came.
Whatever is wrong, however large or nested, becomes an `OrderRefusedError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

MAX_AMOUNT = 2**63 - 1
MAX_NUMBER = 1000
FIELDS = ("amount", "currency", "metadata")

_CURRENCY = re.compile(r"[A-Z]{3}")
_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class OrderRefusedError(ValueError):
    """The body is no payment; the text says what to change."""


@dataclass(frozen=True, slots=True)
class Order:
    """A payment that is asked for.

    Attributes:
        amount: in the smallest unit of the currency, above 0.
        currency: three upper-case letters (ISO 4217).
        metadata: the client's own JSON value, as the text that came; or `None`.
    """

    amount: int
    currency: str
    metadata: str | None = None


def read_order(body: bytes) -> Order:
    """Read a payment.

    Raises:
        OrderRefusedError: it is not one.
    """
    members = _members(body)
    if unknown := sorted(members.keys() - set(FIELDS)):
        raise OrderRefusedError(f"{len(unknown)} unknown field(s): send only {', '.join(FIELDS)}")
    for name in ("amount", "currency"):
        if name not in members:
            raise OrderRefusedError(f"the field `{name}` is missing")
    currency = members["currency"][0]
    if not (isinstance(currency, str) and _CURRENCY.fullmatch(currency)):
        raise OrderRefusedError("`currency` must be three upper-case letters, such as RUB")
    metadata = members.get("metadata")
    return Order(_amount(members["amount"][0]), currency, metadata[1] if metadata else None)


class _Fraction(str):
    """A number with a point or an exponent, as it is written."""

    __slots__ = ()


def _amount(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | _Fraction):
        raise OrderRefusedError("`amount` must be a number")
    try:
        number = Decimal(value)
    except InvalidOperation:  # an exponent beyond all that Decimal holds
        number = Decimal(0)
    # Compared before it is converted: 1e999999999 has a billion digits as an int.
    if not 0 < number <= MAX_AMOUNT:
        raise OrderRefusedError(f"`amount` must be from 1 to {MAX_AMOUNT}")
    if number != int(number):
        raise OrderRefusedError("`amount` must be a whole number of the currency's smallest unit")
    return int(number)


def _members(body: bytes) -> dict[str, tuple[Any, str]]:
    """Return each member of the body's object as its value and its text."""
    try:
        text = body.decode()
        found = list(_walk(text))
        if _SURROGATE.search(text):
            _refuse_lone_surrogates(found)
    except OrderRefusedError:
        raise
    except ValueError:
        raise OrderRefusedError("the body is not a JSON object in UTF-8") from None
    except RecursionError:
        raise OrderRefusedError("the body is nested too deeply") from None
    members = {name: (value, raw) for name, value, raw in found}
    if len(members) < len(found):
        raise OrderRefusedError("a field came more than once")
    return members


def _walk(text: str) -> Iterator[tuple[str, Any, str]]:
    """Yield name, value and text of each member of the object that a text is."""
    at = _skip(text, 0, "{")
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            name, at = _DECODER.raw_decode(text, at)
            if not isinstance(name, str):
                raise ValueError("a member's name was expected")  # noqa: TRY004 - like any other
            start = _skip(text, at, ":")
            value, at = _DECODER.raw_decode(text, start)
            yield name, value, text[start:at]
            at = _after_space(text, at)
            if text[at : at + 1] == "}":
                at += 1
                break
            at = _skip(text, at, ",")
    if _after_space(text, at) != len(text):
        raise ValueError("something follows the object")


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _skip(text: str, at: int, mark: str) -> int:
    """Return the place of the next word behind a mark that must come now."""
    at = _after_space(text, at)
    if not text.startswith(mark, at):
        raise ValueError(f"{mark} was expected")
    return _after_space(text, at + 1)


def _integer(digits: str) -> int:
    return int(_bounded(digits))


def _fraction(digits: str) -> _Fraction:
    return _Fraction(_bounded(digits))


def _bounded(digits: str) -> str:
    if len(digits) > MAX_NUMBER:
        raise OrderRefusedError(f"a number is longer than {MAX_NUMBER} characters")
    return digits


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_lone_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise OrderRefusedError("a text holds half of a surrogate pair") from None


_DECODER = json.JSONDecoder(parse_float=_fraction, parse_int=_integer, parse_constant=_no_constant)
