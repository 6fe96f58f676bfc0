"""Refusals as problem details (rule R3, RFC 9457).

Each says what happened and what to do about it, and `retryable` says whether
the same request may be sent again as it is. None repeats anything of this
request or of another one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from semel.core.headers import refuse_injection
from semel.core.model import Answer, InDoubt, InFlight, Mismatch, NotStored, StaleKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.core.model import HeaderPairs

URN: Final = "urn:semel:problem:"
DAY: Final = 86_400.0

Refusal: TypeAlias = InFlight | Mismatch | StaleKey | InDoubt | NotStored


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One kind of refusal.

    Attributes:
        name: what the `type` ends with; never changes.
        status: the HTTP status.
        title: the kind in a few words.
        detail: what the caller should do.
        retry_after: seconds after which the same request may be sent again;
            `None` where it would be refused again.
    """

    name: str
    status: int
    title: str
    detail: str
    retry_after: float | None = None

    @property
    def retryable(self) -> bool:
        """Whether the same request may be sent again as it is."""
        return self.retry_after is not None

    def to_answer(
        self,
        *,
        base: str = URN,
        docs: str | None = None,
        retry_after: float | None = None,
        detail: str | None = None,
        headers: HeaderPairs = (),
    ) -> Answer:
        """Return the answer to send.

        Args:
            base: what the `type` begins with.
            docs: the address of the application's own words about its keys.
            retry_after: seconds, instead of the problem's own; rounded up, at
                least 1 and at most a day. Only a retryable problem has any.
            detail: instead of the problem's own.
            headers: pairs to send in addition.

        Raises:
            HeaderMalformedError: an address or a header holds CR, LF or NUL.
        """
        content = {
            "type": base + self.name,
            "title": self.title,
            "status": self.status,
            "detail": detail or self.detail,
            "retryable": self.retryable,
        }
        body = json.dumps(content).encode()
        pairs = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if self.retry_after is not None:
            wait = self.retry_after if retry_after is None else retry_after
            pairs.append((b"retry-after", b"%d" % math.ceil(min(max(1.0, wait), DAY))))
        if docs:
            pairs.append((b"link", f'<{docs}>; rel="describedby"'.encode()))
        pairs.extend(headers)
        refuse_injection(tuple(pairs))
        return Answer(self.status, tuple(pairs), body)


KEY_MISSING: Final = Problem(
    name="key-missing",
    status=400,
    title="Idempotency key is missing",
    detail=(
        "This operation needs an idempotency key. Make a new one, such as a UUID, "
        "before the first try, and send the same one on every retry."
    ),
)
KEY_MALFORMED: Final = Problem(
    name="key-malformed",
    status=400,
    title="Idempotency key is malformed",
    detail="Send one key of 1 to 255 visible ASCII characters, best in double quotes.",
)
SCOPE_MISSING: Final = Problem(
    name="scope-missing",
    status=400,
    title="Nobody owns the idempotency key",
    detail="The request names nobody whose key this could be. Send valid credentials with it.",
)
KEY_REUSED: Final = Problem(
    name="key-reused",
    status=422,
    title="Idempotency key is already used",
    detail=(
        "This key was used for a different request. "
        "Send another operation with a new key, or retry with exactly the first request."
    ),
)
IN_FLIGHT: Final = Problem(
    name="in-flight",
    status=409,
    title="The same operation is still running",
    detail="A request with this key is being worked on. Retry with the same key after the pause.",
    retry_after=1.0,
)
OUTCOME_UNKNOWN: Final = Problem(
    name="outcome-unknown",
    status=409,
    title="The outcome of the operation is unknown",
    detail=(
        "The operation was interrupted and may have taken effect. Do not repeat it with a new "
        "key: look up its result, or ask the operator of this service."
    ),
)
STALE_KEY: Final = Problem(
    name="stale-key",
    status=412,
    title="Idempotency key is too old",
    detail=(
        "The key is older than keys are remembered here, so the operation may have been done "
        "before. Look up its result; only if there is none, send it with a new key."
    ),
)
BODY_TOO_LARGE: Final = Problem(
    name="body-too-large",
    status=413,
    title="The request body is too large",
    detail="The body is larger than a request with an idempotency key may be. Send a smaller one.",
)
RESPONSE_NOT_STORED: Final = Problem(
    name="response-not-stored",
    status=409,
    title="The answer is no longer available",
    detail=(
        "The operation was done under this key, but its answer was not kept. "
        "Do not repeat it: look up its result."
    ),
)
STORE_UNAVAILABLE: Final = Problem(
    name="store-unavailable",
    status=503,
    title="The operation can not be protected now",
    detail="The request was not settled. Retry with the same key after the pause.",
    retry_after=1.0,
)
PRECONDITION_FAILED: Final = Problem(
    name="precondition-failed",
    status=412,
    title="The resource was changed meanwhile",
    detail="Fetch the current state, decide again, and send its ETag in If-Match with a new key.",
)
PRECONDITION_REQUIRED: Final = Problem(
    name="precondition-required",
    status=428,
    title="A precondition is required",
    detail="Fetch the current state and send its ETag in If-Match.",
)

PROBLEMS: Final[Mapping[str, Problem]] = MappingProxyType(
    {
        problem.name: problem
        for problem in (
            KEY_MISSING,
            KEY_MALFORMED,
            SCOPE_MISSING,
            KEY_REUSED,
            IN_FLIGHT,
            OUTCOME_UNKNOWN,
            STALE_KEY,
            BODY_TOO_LARGE,
            RESPONSE_NOT_STORED,
            STORE_UNAVAILABLE,
            PRECONDITION_FAILED,
            PRECONDITION_REQUIRED,
        )
    }
)


def from_decision(decision: Refusal) -> Problem:
    """Return the problem that a decision is answered with.

    That of `InFlight` carries the decision's own pause.
    """
    match decision:
        case InFlight(retry_after):
            return replace(IN_FLIGHT, retry_after=retry_after)
        case Mismatch():
            return KEY_REUSED
        case StaleKey():
            return STALE_KEY
        case InDoubt():
            return OUTCOME_UNKNOWN
        case NotStored():
            return RESPONSE_NOT_STORED
        case _:
            assert_never(decision)
