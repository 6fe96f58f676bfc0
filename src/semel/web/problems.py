"""What a request is answered with when its handler does not run."""

from __future__ import annotations

import json
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from semel.core.answer import replay
from semel.core.headers import refuse_injection, values_of
from semel.core.model import Answer, InDoubt, InFlight, Mismatch, NotStored, Replay, StaleKey
from semel.core.problem import SCOPE_MISSING, STORE_UNAVAILABLE, Problem, from_decision

if TYPE_CHECKING:
    from semel.core.options import Options
    from semel.errors import AccessRefusedError
    from semel.web.request import Request

SCOPE_FAILED: Final = replace(
    SCOPE_MISSING,
    status=503,
    title="The owner of the idempotency key can not be found out now",
    detail="Nothing was done. Retry with the same key after the pause.",
    retry_after=1.0,
)
FORBIDDEN: Final = 403
# Refusals of the moment: the same request may be let through later.
_MOMENTARY: Final = frozenset({408, 425, 429, 502, 503, 504})


def to_answer(problem: Problem, options: Options, *, detail: str | None = None) -> Answer:
    """Return the answer to a problem, dressed as the application wants it."""
    return problem.to_answer(base=options.problem_base, docs=options.docs_url, detail=detail)


def from_refusal(refusal: AccessRefusedError) -> Answer:
    """Return the answer to a request that the application itself refused.

    The application's refusals are of no type of Semel's, so the status says all
    (`about:blank`; RFC 9457, section 4.2.1). What is no error status means 403.

    Raises:
        HeaderMalformedError: a header of the refusal holds CR, LF or NUL.
    """
    status = refusal.status if 400 <= refusal.status <= 599 else FORBIDDEN  # noqa: PLR2004
    content = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase if status in set(HTTPStatus) else "Refused",
        "status": status,
        "detail": refusal.detail,
        "retryable": status in _MOMENTARY,
    }
    body = json.dumps(content).encode()
    own = {b"content-type", b"content-length"}
    extra = [
        (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in refusal.headers
    ]
    pairs = (
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *(pair for pair in extra if pair[0] not in own),
    )
    refuse_injection(pairs)
    return Answer(status, pairs, body)


def from_outcome(outcome: object, request: Request, options: Options) -> Answer:
    """Return the answer that a decision other than `Execute` calls for (rules R1, R3).

    Args:
        outcome: the decision; `None`, or anything unknown, stands for a
            settlement that failed and left the key free: 503, to be retried.
        request: the request at hand, for the encodings that it accepts.
        options: how replays and problems are dressed.
    """
    if isinstance(outcome, Replay):
        accepted = values_of(request.headers.raw, b"accept-encoding")
        outcome = replay(
            outcome.answer,
            b", ".join(accepted) if accepted else None,
            marker=options.replay_marker.encode("latin-1"),
            replay_status=options.replay_status,
        )
        if isinstance(outcome, Answer):
            return outcome
    if isinstance(outcome, InFlight | Mismatch | StaleKey | InDoubt | NotStored):
        return to_answer(from_decision(outcome), options)
    return to_answer(STORE_UNAVAILABLE, options)
