"""Ask the application who a request is from, and whether it may be answered (R2).

A middleware stands before the framework's own authentication, so what it is
given here is all that protects a stored answer: whatever goes wrong refuses.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from semel.core.identity import Scope, Shared
from semel.core.model import Answer
from semel.core.options import Options
from semel.core.problem import SCOPE_MISSING
from semel.errors import AccessRefusedError, BodyTooLargeError, HeaderMalformedError
from semel.web.body import ClientGoneError
from semel.web.problems import FORBIDDEN, SCOPE_FAILED, from_refusal, to_answer
from semel.web.request import Request

logger = logging.getLogger("semel")

ScopeFunction: TypeAlias = Callable[[Request], Scope | Awaitable[Scope | None] | None]
AuthorizeFunction: TypeAlias = Callable[[Request], bool | Awaitable[bool]]

_MEANT: Final = "a non-empty text, a tuple of them, or semel.SHARED"


async def scope_of(
    source: ScopeFunction | Shared, request: Request, options: Options
) -> Scope | Answer:
    """Return who owns this request's key, or the answer that refuses it.

    Raises:
        BodyTooLargeError: the function read the body, and it exceeds its limit.
        ClientGoneError: likewise, and the client left before its end.
    """
    if isinstance(source, Shared):
        return source
    found = await ask(source, request, options)
    return found if isinstance(found, Answer) else owner_of(found, request, options)


def owner_of(found: object, request: Request, options: Options) -> Scope | Answer:
    """Check what the application said about who owns a key.

    Returns:
        The owner, or the answer to a request that nobody owns.
    """
    if isinstance(found, Shared):
        return found
    parts = found if isinstance(found, tuple) else (found,)
    if parts and all(isinstance(part, str) and part.strip() for part in parts):
        return found if isinstance(found, str) else parts
    if found not in (None, "", ()):
        logger.warning(
            "%s: the scope function returned a %s; it must be %s",
            request.route,
            type(found).__name__,
            _MEANT,
        )
    return to_answer(SCOPE_MISSING, options)


async def refusal_of(
    authorize: AuthorizeFunction | None, request: Request, options: Options
) -> Answer | None:
    """Return the answer that refuses a request, `None` where it is allowed.

    Only a true value allows: a function that forgot to return refuses.

    Raises:
        BodyTooLargeError: the function read the body, and it exceeds its limit.
        ClientGoneError: likewise, and the client left before its end.
    """
    if authorize is None:
        return None
    found = await ask(authorize, request, options)
    if isinstance(found, Answer):
        return found
    return None if found else from_refusal(AccessRefusedError(FORBIDDEN))


async def ask(
    function: Callable[[Request], Any],
    request: Request,
    options: Options,
) -> Any:  # noqa: ANN401 - the caller checks what it is
    """Call a function of the application's, sync or async.

    Returns:
        What it returned, or the answer that its exception calls for: the
        refusal, or 503, since a request must not run unguarded because an
        identity service is down.

    Raises:
        BodyTooLargeError: it read the body, and that exceeds its limit.
        ClientGoneError: it read the body, and the client left before its end.
    """
    try:
        found = function(request)
        return await found if inspect.isawaitable(found) else found
    except (BodyTooLargeError, ClientGoneError):
        raise
    except AccessRefusedError as refusal:
        try:
            return from_refusal(refusal)
        except HeaderMalformedError as error:
            return _failed(function, request, options, error)
    except Exception as error:  # noqa: BLE001 - whatever it is, nothing may run
        return _failed(function, request, options, error)


def _failed(
    function: Callable[[Request], Any], request: Request, options: Options, error: Exception
) -> Answer:
    # Its text may hold a credential: the type is enough for one line.
    logger.error(
        "%s: %s raised %s; answered with 503",
        request.route,
        getattr(function, "__qualname__", type(function).__name__),
        type(error).__name__,
    )
    logger.debug("the error was", exc_info=error)
    return to_answer(SCOPE_FAILED, options)
