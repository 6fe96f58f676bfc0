"""Find the key of a request that does not carry it in a header (rule K6)."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from semel.core.headers import values_of
from semel.core.key import BodyField, FormField, parse_value
from semel.errors import BodyTooLargeError, KeyMalformedError
from semel.web.body import ClientGoneError
from semel.web.request import Request

logger = logging.getLogger("semel")

KeyFunction: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]


async def in_body(source: BodyField | FormField | KeyFunction, request: Request) -> str | None:
    """Return the key that a body field, a form field or a function gives.

    Raises:
        KeyMalformedError: what was found is no key, or the function raised.
        BodyTooLargeError: the body exceeds its limit.
        ClientGoneError: the client left before the body's end.
    """
    if isinstance(source, BodyField | FormField):
        content_type = b", ".join(values_of(request.headers.raw, b"content-type")) or None
        return source.read(content_type, await request.body())
    key = await _call(source, request)
    if key is None:
        return None
    if not isinstance(key, str):
        raise KeyMalformedError("the function that finds the key did not return a text")
    return parse_value(key)


async def _call(function: KeyFunction, request: Request) -> object:
    try:
        found = function(request)
        return await found if inspect.isawaitable(found) else found
    except (BodyTooLargeError, ClientGoneError, KeyMalformedError):
        raise
    except Exception as error:
        # Such functions take bodies apart, and bodies may be anything. Its text
        # may hold the body, and with it the key: the type is enough.
        logger.warning(
            "%s: the function that finds the key raised %s", request.route, type(error).__name__
        )
        raise KeyMalformedError("the request holds no key that could be found") from error
