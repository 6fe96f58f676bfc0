"""Every operation on claims, written once (rules A2, A3, A4, A6, A7).

The statement that arbitrates is always an insert or a conditional update: a
look-up never decides who runs. In atomic mode the order is

    BEGIN, claim_open, SAVEPOINT, the handler, claim_complete, COMMIT

and only where `claim_open` returned no row the claim is looked up. Stores that can
send scripts try the usual case first, a key without a row, in one round trip. In joined
mode the claim is committed first, with a lease; the handler's transaction then
carries the effect and the owner-checked completion.

An error of the database before the handler ran starts the work again; after it
ran, the caller rolls back and looks once (`semel.guard` does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from semel.core.answer import pack_headers
from semel.core.model import (
    Answer,
    Decision,
    Execute,
    Found,
    Identity,
    InFlight,
    Mode,
    NewClaim,
)
from semel.errors import (
    ClaimLostError,
    StoreConflictError,
    StoreUnavailableError,
)
from semel.store.statement import (
    BEGIN,
    COMMIT,
    ROLLBACK,
    ROLLBACK_TO,
    SAVEPOINT,
    Row,
    Statement,
    Steps,
    script,
)
from semel.store.values import (
    KEPT_PLACE,
    Held,
    found_in,
    held_params,
    identity_params,
    new_params,
    setting,
)

Judge: TypeAlias = Callable[[Found], Decision]

# Under contention on one key they come in a row; each is cheap: no handler has run.
ACQUIRE_TRIES = 8


def acquire_atomic(new: NewClaim, judge: Judge, *, scripts: bool) -> Steps[Decision]:
    """Open a transaction and claim the key in it.

    Args:
        new: the claim to take.
        judge: interprets a row that stands in the way.
        scripts: whether the store can send several statements in one round trip.

    Returns:
        `Execute` with the transaction left open, at a savepoint; any other
        decision with the transaction ended.

    Raises:
        StoreUnavailableError: the database kept aborting the transaction.
    """
    if scripts:
        decided = yield from _acquire_fresh(new, judge)
        if decided is not None:
            return decided
    for _ in range(ACQUIRE_TRIES):
        yield BEGIN
        try:
            decision = yield from _claim_in_transaction(new, judge)
        except StoreConflictError:
            yield ROLLBACK
            continue
        if isinstance(decision, Execute):
            yield SAVEPOINT
        else:
            yield ROLLBACK
        return decision
    raise StoreUnavailableError("the claim kept colliding with other transactions")


def _acquire_fresh(new: NewClaim, judge: Judge) -> Steps[Decision | None]:
    """Claim a key that has no row, in one round trip; else look who has it.

    Returns:
        As `acquire_atomic`, or `None` with nothing open where the longer way has to
        decide: a row is to be taken over, or the connection would not take the script.
    """
    attempt = script(
        BEGIN, Statement("claim_fresh", new_params(new)), SAVEPOINT, Statement("claim_won")
    )
    try:
        won = yield attempt
        if won:
            return Execute(token=1, place=KEPT_PLACE)
        found = yield from look(new.identity, new.lock)
    except StoreConflictError:
        yield ROLLBACK
        return None
    yield ROLLBACK
    if found is None:
        return InFlight()  # a rival's insert is not committed: its lock is held
    decision = judge(found)
    return None if isinstance(decision, Execute) else decision


def _claim_in_transaction(new: NewClaim, judge: Judge) -> Steps[Decision]:
    opened = yield Statement("claim_open", new_params(new))
    if opened:
        return _granted(opened[0], takeover=False)
    found = yield from look(new.identity, new.lock)
    if found is None:
        return InFlight()  # a rival's insert is not committed: its lock is held
    decision = judge(found)
    if not isinstance(decision, Execute):
        return decision
    # The row was made in another mode. The lock first, so that a rival in
    # atomic mode is answered at once instead of waiting for our row.
    locked = yield Statement("claim_lock", new_params(new))
    if not locked[0][0]:
        return InFlight()
    return (yield from _take(new, found, decision))


def acquire_joined(new: NewClaim, judge: Judge, *, transaction: bool) -> Steps[Decision]:
    """Claim the key in a commit of its own, with a lease.

    Args:
        new: the claim to take.
        judge: interprets a row that stands in the way.
        transaction: whether the statements need one transaction round them, as
            on SQLite, whose write lock is the arbiter. Elsewhere each statement
            commits by itself.

    Returns:
        `Execute` means that the claim is committed and ours.
    """
    unseen = False
    for _ in range(ACQUIRE_TRIES):
        try:
            if transaction:
                yield BEGIN
            decision = yield from _claim_by_itself(new, judge)
            if transaction:
                yield COMMIT
        except StoreConflictError:
            if transaction:
                yield ROLLBACK
            continue
        if decision is not None:
            return decision
        unseen = True
    if unseen:
        return InFlight()  # an atomic claim is open under this key
    raise StoreUnavailableError("the claim kept colliding with other transactions")


def _claim_by_itself(new: NewClaim, judge: Judge) -> Steps[Decision | None]:
    inserted = yield Statement("claim_insert", new_params(new))
    if inserted:
        return Execute(token=inserted[0][0])
    found = yield from look(new.identity, None)
    if found is None:
        return None  # purged between the two statements, or not committed: look again
    decision = judge(found)
    if not isinstance(decision, Execute) or found.owner == new.owner:
        return decision
    return (yield from _take(new, found, decision))


def _take(new: NewClaim, found: Found, decision: Execute) -> Steps[Decision]:
    """Take over exactly the row that was judged; whoever was quicker has it."""
    taken = yield Statement(
        "claim_take",
        {**new_params(new), "seen_owner": found.owner, "seen_token": found.token},
    )
    if not taken:
        return InFlight()
    granted = _granted(taken[0], takeover=decision.takeover)
    # A claim that is committed before its completion is moved by every renewal.
    return granted if new.mode is Mode.ATOMIC else replace(granted, place=None)


def _granted(row: Row, *, takeover: bool) -> Execute:
    token, *place = row
    return Execute(token, takeover, place[0] if place else None)


def look(identity: Identity, lock: int | None = None) -> Steps[Found | None]:
    """Read a claim without changing anything.

    Args:
        identity: scope and key.
        lock: the claim's advisory lock, to learn whether an atomic claim that
            is visible although it is in progress has lost its owner.
    """
    rows = yield Statement("claim_look", {**identity_params(identity), "lock": lock})
    return found_in(rows[0]) if rows else None


def open_effect(held: Held, idle_timeout: float, lock: int) -> Steps[str | None]:
    """Begin the effect's transaction of a joined claim.

    Under an isolation level that reads from a snapshot the claim's row is locked
    here as well: a renewal of the lease later on would make the completion fail.

    Args:
        held: the claim.
        idle_timeout: seconds after which the database ends an idle transaction.
        lock: the claim's advisory lock.

    Returns:
        The transaction's own name, where the store has one; for `was_committed`.
    """
    yield BEGIN
    opened = yield Statement(
        "effect_open",
        {
            **held_params(held),
            "idle_timeout": setting(idle_timeout),
            "lock": lock,
            "proof": held.owner.hex(),
        },
    )
    name = opened[0][-1] if opened else None
    return None if name is None else str(name)


def was_committed(transaction: str, *, begun: bool = False) -> Steps[bool]:
    """Say whether the transaction that `open_effect` began has been committed.

    Args:
        transaction: its name.
        begun: whether a transaction is open here that can not answer: it is rolled back.
    """
    if begun:
        yield ROLLBACK
    rows = yield Statement("effect_outcome", {"transaction": transaction})
    return bool(rows[0][0])


def prove(held: Held) -> Steps[bool]:
    """Say whether the open transaction is still the one that `open_effect` began."""
    rows = yield Statement("effect_proof", {"proof": held.owner.hex()})
    return bool(rows[0][0])


def settle_atomic(held: Held, answer: Answer, *, undo: bool) -> Steps[None]:
    """Store the answer and commit it with the effect.

    Args:
        held: the claim, whose transaction is open.
        answer: what to store.
        undo: roll the handler's effects back first (rule O2).

    Raises:
        ClaimLostError: the claim is not ours any more; nothing was committed.
        StoreError: nothing was committed, unless `outcome_unknown` says so.
    """
    if undo:
        yield ROLLBACK_TO
    yield from _complete(held, answer, proof=held.owner.hex())
    yield COMMIT


def settle_joined(held: Held, answer: Answer, *, begun: bool, undo: bool) -> Steps[None]:
    """Store the answer and commit it with the effect; see `settle_atomic`.

    Args:
        held: the claim.
        answer: what to store.
        begun: whether the effect's transaction is open.
        undo: drop the handler's effects.
    """
    if begun and undo:
        yield ROLLBACK
    fresh = undo or not begun
    if fresh:
        yield BEGIN
    yield from _complete(held, answer, proof=None if fresh else held.owner.hex())
    yield COMMIT


def _complete(held: Held, answer: Answer, *, proof: str | None) -> Steps[None]:
    rows = yield Statement(
        "claim_complete" if held.place is None else "claim_complete_here",
        {
            **held_params(held),
            "place": None if held.place == KEPT_PLACE else held.place,
            "answer_status": answer.status,
            "headers": pack_headers(answer.headers),
            "body": answer.body,
            "retention": held.retention,
            "proof": proof,
        },
    )
    if not rows:
        raise ClaimLostError("the claim was taken over before it could be completed")


def abandon(*, begun: bool) -> Steps[None]:
    """End the open transaction, if there is one, with nothing changed."""
    if begun:
        yield ROLLBACK


def release(held: Held) -> Steps[bool]:
    """Give a joined claim back: the next request executes (rule O2).

    The row stays, so that its fencing token does not go back.

    Returns:
        False where the claim was not ours any more.
    """
    rows = yield Statement("claim_release", {**held_params(held), "retention": held.retention})
    return bool(rows)


def put_in_doubt(held: Held) -> Steps[bool]:
    """Record that nobody knows whether the effect happened (rule A5)."""
    rows = yield Statement("claim_doubt", held_params(held))
    return bool(rows)


def renew(claims: Sequence[tuple[Held, float]]) -> Steps[set[bytes]]:
    """Extend the leases of many claims in one statement (rule A4).

    Rows that somebody has locked are passed over instead of waited for.

    Args:
        claims: each claim with its lease in seconds.

    Returns:
        The owners whose claims are lost: taken over, settled or gone.
    """
    columns = {
        "scopes": [held.identity.scope for held, _ in claims],
        "keys": [held.identity.key for held, _ in claims],
        "owners": [held.owner for held, _ in claims],
    }
    leases = [lease for _, lease in claims]
    renewed = yield Statement("claim_renew", {**columns, "leases": leases})
    left = {held.owner for held, _ in claims} - {bytes(row[0]) for row in renewed}
    if left:
        ours = yield Statement("claim_owned", columns)
        left -= {bytes(row[0]) for row in ours}
    return left


def purge(limit: int) -> Steps[int]:
    """Delete at most `limit` claims that count as absent (rule X2)."""
    rows = yield Statement("claim_purge", {"limit": limit})
    return len(rows)
