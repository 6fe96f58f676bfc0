"""From claims to the values of statements, and from rows back to claims."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from semel.core.answer import unpack_headers
from semel.core.model import Answer, Found, Identity, Mode, NewClaim, Status
from semel.store.statement import Row

# The place of a row that the transaction keeps in a setting of its own.
KEPT_PLACE = "kept"


@dataclass(frozen=True, slots=True)
class Held:
    """What an owner needs to prove that a claim is still its own.

    Attributes:
        place: where the store keeps the row that this transaction wrote (atomic);
            `KEPT_PLACE` where only the transaction knows.
    """

    identity: Identity
    owner: bytes
    retention: float
    place: str | None = None


def identity_params(identity: Identity) -> dict[str, Any]:
    """Return what a claim is found by."""
    return {"scope": identity.scope, "key": identity.key}


def held_params(held: Held) -> dict[str, Any]:
    """Return what a claim of this owner's is found by."""
    return {"scope": held.identity.scope, "key": held.identity.key, "owner": held.owner}


def new_params(new: NewClaim) -> dict[str, Any]:
    """Return all values of a claim that is to be taken."""
    return {
        "scope": new.identity.scope,
        "key": new.identity.key,
        "mode": new.mode.value,
        "fp": new.request.digest,
        "raw": new.request.raw,
        "recipe": new.request.recipe,
        "owner": new.owner,
        "lease": new.lease,
        "retention": new.retention,
        "lock": new.lock,
        "proof": new.owner.hex(),
        "idle_timeout": setting(new.idle_timeout),
    }


def setting(seconds: float) -> str:
    """Return a setting of PostgreSQL's in whole milliseconds; 0 would switch it off."""
    return f"{max(1, math.ceil(seconds * 1000))}ms"


def found_in(row: Row) -> Found:
    """Return the claim that a row of `claim_look` shows."""
    status = Status(row[1])
    answer = None
    if status is Status.COMPLETED:
        body = None if row[10] is None else bytes(row[10])
        answer = Answer(row[8], unpack_headers(bytes(row[9])), body)
    return Found(
        mode=Mode(row[0]),
        status=status,
        digest=bytes(row[2]),
        raw=bytes(row[3]),
        recipe=row[4],
        owner=bytes(row[5]),
        token=row[6],
        lease_expires_at=row[7],
        expires_at=row[11],
        answer=answer,
        now=row[12],
        unheld=bool(row[13]),
    )
