"""Find routes whose security a middleware can not see, and say so (rule R2).

FastAPI authenticates in dependencies, inside of every middleware. Nothing of it is
imported here: a route is known by what it has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from semel.web.notices import Notices

logger = logging.getLogger("semel")


def warn_of_security(notices: Notices, app: object, methods: AbstractSet[str]) -> None:
    """Name the guarded routes with security dependencies, once.

    Args:
        notices: what the application was told already.
        app: an application of FastAPI's, or any other, maybe inside of middleware.
        methods: those that the middleware guards.
    """
    if not notices.first("security"):
        return
    # Middleware of Starlette's kind keeps what it wraps in `app`.
    while not hasattr(app, "routes") and hasattr(app, "app"):
        app = app.app
    found = sorted(set(_secured(app, "", methods)))
    if found:
        logger.warning(
            "IdempotencyMiddleware answers replays before FastAPI authenticates: make sure "
            "that its scope function verifies the credential by itself, or use "
            "semel.fastapi.route_class instead. Routes with security dependencies: %s",
            ", ".join(found),
        )


def _secured(app: object, prefix: str, methods: AbstractSet[str]) -> Iterator[str]:
    for route in _routes(app):
        path = prefix + str(getattr(route, "path", "") or "")
        dependant = getattr(route, "dependant", None)
        if dependant is not None:
            if _is_secured(dependant):
                guarded = sorted(methods & set(getattr(route, "methods", None) or ()))
                yield from (f"{method} {path}" for method in guarded)
        elif getattr(route, "routes", None):
            yield from _secured(route, path, methods)


def _routes(app: object) -> Iterator[Any]:
    """Go through routes; an included router of FastAPI's gives those that came of it."""
    for route in getattr(app, "routes", None) or ():
        effective = getattr(route, "effective_route_contexts", None)
        if callable(effective):
            # What is no route of FastAPI's own, such as a mount, stands inside.
            yield from (getattr(one, "starlette_route", None) or one for one in effective())
        else:
            yield route


def _is_secured(dependant: Any) -> bool:  # noqa: ANN401 - FastAPI's Dependant
    """Say whether a dependency is a security scheme, or reads the credential itself."""
    scheme = getattr(dependant, "call", None)
    if hasattr(scheme, "scheme_name") and hasattr(scheme, "model"):
        return True
    headers = getattr(dependant, "header_params", ())
    if any(str(getattr(field, "alias", "")).lower() == "authorization" for field in headers):
        return True
    return any(_is_secured(inner) for inner in getattr(dependant, "dependencies", ()))
