r"""What a claim that was found means for the request at hand.

The store arbitrates: one statement decides who holds a key. This module only
interprets the row that the store returned, and the store's statements repeat
its predicates (`is_absent`, `lease_is_over`) in SQL, so that the memory store
and the databases can be compared with each other.

Life of a claim:

    (none) --acquire--> IN_PROGRESS --complete--> COMPLETED --retention--> (absent)
                             |  \--release--> RELEASED --acquire--> IN_PROGRESS
                             |  \--lease over, acquire--> IN_PROGRESS (takeover)
                             \--owner gone, effect unknown--> IN_DOUBT --settle-->
"""

from __future__ import annotations

from typing import assert_never

from semel.core.model import (
    Decision,
    Execute,
    Found,
    InDoubt,
    InFlight,
    Mismatch,
    Mode,
    NotStored,
    Replay,
    RequestFingerprint,
    Status,
)

# A rival's transaction tells nothing about when it will end: the least that
# `Retry-After` can say.
ATOMIC_RETRY_AFTER = 1.0


def lease_is_over(found: Found) -> bool:
    """Say whether a claim's lease has run out; at the exact moment it has."""
    return found.lease_expires_at is not None and found.lease_expires_at <= found.now


def is_absent(found: Found) -> bool:
    """Say whether the row counts as no claim at all (rules X1, A5).

    A released claim is free at once; a completed one after its retention; an
    abandoned joined one, which provably had no effect, after its retention.
    A claim in doubt never expires, nor does a leased one in progress.
    """
    match found.status:
        case Status.RELEASED:
            return True
        case Status.COMPLETED:
            return found.expires_at <= found.now
        case Status.IN_PROGRESS:
            return (
                found.mode is Mode.JOINED and lease_is_over(found) and found.expires_at <= found.now
            )
        case Status.IN_DOUBT:
            return False
        case _:
            assert_never(found.status)


def decide(found: Found, request: RequestFingerprint, owner: bytes) -> Decision:
    """Interpret a claim that stands in the way of an acquire.

    Args:
        found: the row, with the store's time.
        request: the fingerprint of the request at hand.
        owner: the owner of this acquire; a row that already carries it was
            written by a try whose answer got lost (rule A7).

    Returns:
        `Execute` means: this row may be taken, if it still is as it was found.

    Raises:
        RecipeUnknownError: the request can not be compared.
    """
    if found.owner == owner and found.status is Status.IN_PROGRESS:
        return Execute(found.token)
    if is_absent(found):
        return Execute(found.token + 1)
    if not request.matches(found.recipe, found.digest, found.raw):
        return Mismatch()
    match found.status:
        case Status.COMPLETED:
            return _settled(found)
        case Status.IN_PROGRESS:
            return _running(found)
        case _:
            return InDoubt()


def _settled(found: Found) -> Decision:
    answer = found.answer
    if answer is None or answer.body is None:
        return NotStored(answer.status if answer else 0)
    return Replay(answer)


def _running(found: Found) -> Decision:
    if found.mode is Mode.ATOMIC:
        # The row of an open atomic claim is never visible, unless the handler
        # committed behind our back; then a free lock means that it is gone.
        return InDoubt() if found.unheld else InFlight(ATOMIC_RETRY_AFTER)
    if lease_is_over(found):
        return Execute(found.token + 1, takeover=True) if found.mode is Mode.JOINED else InDoubt()
    assert found.lease_expires_at is not None  # noqa: S101 - joined and leased rows carry a lease
    return InFlight(found.lease_expires_at - found.now)
