"""What a guard does, per application or per route."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from semel.core.answer import Storable
from semel.core.key import Header, KeySource
from semel.core.model import Mode
from semel.errors import UsageError

KIB = 1024
MIB = 1024 * KIB
DAY = 86_400.0

_SWITCHES: Final = ("enabled", "required", "strict_key")
_POSITIVE: Final = (
    "retention",
    "lease",
    "idle_timeout",
    "max_request_bytes",
    "max_response_bytes",
)
_SEVERAL: Final = ("methods", "ignore", "fingerprint_headers", "secrets", "keep_headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How requests are guarded.

    Attributes:
        mode: how claim, effect and answer share transactions; `None` takes the
            store's default (rule A2).
        enabled: off means that requests pass as if Semel were not there.
        required: whether a guarded request without a key is refused (rule K3).
        methods: the guarded methods, in any case.
        when: exempts requests: called with the request, sync or async; false means
            unguarded.
        key: where the key comes from: `Header`, `BodyField`, `FormField`, or a
            function of the request, sync or async (rule K6).
        strict_key: accept only the quoted form of the header (RFC 9651).
        retention: seconds for which a settled claim is kept and replayed.
        lease: seconds until a joined claim whose owner stopped may be taken over.
        idle_timeout: seconds after which the database ends the transaction of an
            owner that stopped talking.
        ignore: JSON pointers of body fields that do not make a different request.
        fingerprint_headers: names of headers that do make a different request.
        secrets: secrets for the fingerprint (HMAC), the current one first.
        storable: which statuses are stored (rule O1).
        keep_headers: names of headers to keep beside those of rule R1.
        replay_marker: the name of the header that marks a replay.
        replay_status: the status of a replay in place of a stored 201.
        max_request_bytes: a guarded body above this is refused (rule F7).
        max_response_bytes: an answer above this is not stored (rule O7).
        problem_base: what the `type` of a problem answer begins with.
        docs_url: where this API documents its use of keys.
        remembered: how many settled keys this process keeps in mind.
    """

    mode: Mode | None = None
    enabled: bool = True
    required: bool = True
    methods: frozenset[str] = frozenset({"POST", "PATCH"})
    when: Callable[[Any], bool | Awaitable[bool]] | None = None
    key: KeySource | Callable[[Any], str | Awaitable[str | None] | None] = field(
        default_factory=Header
    )
    strict_key: bool = False
    retention: float = DAY
    lease: float = 10.0
    idle_timeout: float = 30.0
    ignore: tuple[str, ...] = ()
    fingerprint_headers: tuple[str, ...] = ()
    secrets: tuple[bytes, ...] = ()
    storable: Storable = field(default_factory=Storable)
    keep_headers: frozenset[str] = frozenset()
    replay_marker: str = "Idempotent-Replayed"
    replay_status: int | None = None
    max_request_bytes: int = MIB
    max_response_bytes: int = MIB
    problem_base: str = "urn:semel:problem:"
    docs_url: str | None = None
    remembered: int = 4096

    def __post_init__(self) -> None:
        """Refuse values that can not keep the promise.

        Raises:
            UsageError: naming the option and what it must be.
        """
        object.__setattr__(self, "mode", _mode(self.mode))
        function = callable(self.key) and not isinstance(self.key, type)
        if not (function or isinstance(self.key, KeySource)):
            raise UsageError("key must be Header(…), BodyField(…), FormField(…) or a function")
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} must be True or False")
        for name in _POSITIVE:
            if not _is_positive(getattr(self, name)):
                raise UsageError(f"{name} must be a positive, finite number")
        for name in _SEVERAL:
            if isinstance(getattr(self, name), str | bytes):
                raise UsageError(f"{name} must be a collection: write {{...}} or (..., )")
        object.__setattr__(self, "methods", frozenset(name.upper() for name in self.methods))
        if unsafe := self.methods & {"GET", "HEAD", "OPTIONS", "TRACE"}:
            message = f"{', '.join(sorted(unsafe))} must have no effect: not to be guarded"
            raise UsageError(message)


def _mode(value: str | None) -> Mode | None:
    if value is None:
        return None
    try:
        return Mode(value)
    except ValueError:
        raise UsageError(f"mode must be one of {', '.join(Mode)}, or None") from None


def _is_positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < math.inf
