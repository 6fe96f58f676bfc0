"""Options for one route: `@semel.options(...)` under the route's own decorator.

    @api.post("/payments")
    @semel.options(retention=7 * 86_400, ignore=("/client_time",))
    async def pay(payment: Payment): ...

The decorator only leaves a note on the function; the integration that registers the
function, such as `semel.fastapi.route_class`, reads it. So nothing here belongs to a
framework. A middleware knows of no routes, and reads no notes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final, TypeVar

from semel.core.options import Options
from semel.errors import UsageError

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_NOTE: Final = "__semel_options__"
_REGISTERED: Final = "__semel_registered__"
# What a guard has for the whole process.
_SHARED: Final = frozenset({"remembered"})


def options(**changes: Any) -> Callable[[Endpoint], Endpoint]:  # noqa: ANN401 - see Options
    """Change the guard's options for one route.

    Args:
        changes: fields of `Options`, such as `required=False`; `enabled=False`
            leaves the route unguarded.

    Returns:
        A decorator, which belongs directly under that of the route.

    Raises:
        UsageError: there is no such option, it can not be set for one route, or
            its value is unusable.
    """
    check_changes(changes)

    def decorate(endpoint: Endpoint) -> Endpoint:
        if getattr(endpoint, _REGISTERED, False):
            raise UsageError(
                f"{name_of(endpoint)} is registered already: put @semel.options under the "
                "decorator of the route, so that it comes first"
            )
        try:
            setattr(endpoint, _NOTE, {**changes_of(endpoint), **changes})
        except AttributeError:
            raise UsageError(
                f"{name_of(endpoint)} can hold no options: decorate a function, not what was "
                "made of it"
            ) from None
        return endpoint

    return decorate


def check_changes(changes: Mapping[str, Any]) -> None:
    """Refuse options that do not exist, or can not be set for one route (`UsageError`)."""
    names = {field.name for field in dataclasses.fields(Options)}
    if unknown := sorted(changes.keys() - names):
        known = ", ".join(sorted(names - _SHARED))
        raise UsageError(f"there is no option {', '.join(unknown)}; there are: {known}")
    if shared := sorted(changes.keys() & _SHARED):
        raise UsageError(
            f"{', '.join(shared)} belongs to the whole process: give it to the guard's Options"
        )
    Options(**changes)


def changes_of(endpoint: Callable[..., Any]) -> Mapping[str, Any]:
    """Return what `options` noted for a function; empty where nothing was."""
    found = getattr(endpoint, _NOTE, None)
    return found if isinstance(found, dict) else {}


def mark_registered(endpoint: Callable[..., Any]) -> None:
    """Note that a route has read the options: any that come later would come too late."""
    if isinstance(endpoint, FunctionType):  # a method's notes are those of its class
        setattr(endpoint, _REGISTERED, True)


def name_of(endpoint: Callable[..., Any]) -> str:
    """Return how to call a function in a message."""
    return str(getattr(endpoint, "__qualname__", type(endpoint).__name__))
