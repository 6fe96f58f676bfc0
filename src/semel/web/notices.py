"""What an application is told once, and not again at every request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from semel.events import Event, emit
from semel.web.request import route_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from semel.events import EventHook
    from semel.web.asgi_types import AsgiScope

# Without a router's help every path is a route of its own, and paths have no end.
LIMIT: Final = 1000


class Notices:
    """Remembers what was said; one for each middleware or router that is guarded."""

    def __init__(self) -> None:
        """Have said nothing yet."""
        self._said: set[Hashable] = set()

    def first(self, *notice: Hashable) -> bool:
        """Say whether this is new, and from now on known.

        Args:
            notice: what it is about, such as a word and a route.
        """
        if notice in self._said or len(self._said) >= LIMIT:
            return False
        self._said.add(notice)
        return True

    def untouched(self, scope: AsgiScope, hook: EventHook | None) -> None:
        """Say that a route succeeded outside the claim's transaction (rule W2).

        Args:
            scope: the request's, after a router has matched it.
            hook: the guard's.
        """
        route = route_of(scope)
        if self.first("transaction-untouched", scope.get("endpoint") or route):
            detail = (
                "succeeded without using the claim's transaction: its effects are not "
                "committed together with the answer; use claim.tx, or sessions that join it"
            )
            emit(hook, Event("transaction-untouched", route, detail=detail))
