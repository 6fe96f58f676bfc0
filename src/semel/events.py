"""What happened, for those who watch: one small value for each event (rule T4)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

logger = logging.getLogger("semel")

EventName: TypeAlias = Literal[
    "executed",
    "replayed",
    "in-flight",
    "mismatch",
    "in-doubt",
    "not-stored",
    "stale-key",
    "refused",
    "takeover",
    "released",
    "claim-lost",
    "commit-failed",
    "transaction-escaped",
    "transaction-untouched",
    "store-unavailable",
    "renewal-failed",
    "after-commit-failed",
]

_LOUD: Final = frozenset(
    {
        "commit-failed",
        "transaction-escaped",
        "transaction-untouched",
        "claim-lost",
        "after-commit-failed",
    }
)


@dataclass(frozen=True, slots=True)
class Event:
    """One event; keys and scopes appear only as short digests (rule K6).

    Attributes:
        name: what happened.
        route: the method and path, or the function, that it happened to.
        scope: short digest of the scope, or "".
        key: short digest of the key, or "".
        detail: one sentence where there is more to say.
    """

    name: EventName
    route: str = ""
    scope: str = ""
    key: str = ""
    detail: str = ""


EventHook: TypeAlias = Callable[[Event], None]


def is_heard(hook: EventHook | None, name: EventName) -> bool:
    """Say whether anybody would be told: most events of most services go nowhere."""
    return hook is not None or logger.isEnabledFor(_level(name))


def emit(hook: EventHook | None, event: Event) -> None:
    """Log an event and hand it on; a hook that raises changes nothing."""
    logger.log(
        _level(event.name),
        "%s %s scope=%s key=%s %s",
        event.name,
        event.route,
        event.scope,
        event.key,
        event.detail,
    )
    if hook is None:
        return
    try:
        hook(event)
    except Exception:
        logger.exception("the event hook raised")


def _level(name: EventName) -> int:
    return logging.WARNING if name in _LOUD else logging.DEBUG
