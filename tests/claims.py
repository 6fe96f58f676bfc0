"""Claims for the tests of stores: made here, run through `semel.store.programs`."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semel.core.decide import decide
from semel.core.model import Answer, Identity, Mode, NewClaim
from semel.store.programs import (
    Judge,
    acquire_atomic,
    acquire_joined,
    settle_atomic,
    settle_joined,
)
from semel.store.statement import COMMIT
from semel.store.values import Held

if TYPE_CHECKING:
    from semel.core.model import Decision
    from semel.store.statement import Steps

LEASE = 10.0
RETENTION = 100.0
ANSWER = Answer(201, ((b"content-type", b"application/json"), (b"link", b"")), b'{"id": "\x00"}')


def digest(text: str) -> bytes:
    """Return 32 bytes that stand for a text."""
    return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True)
class Request:
    """The fingerprint of a request whose body is a text."""

    body: str
    recipe: str = "test-1"

    @property
    def digest(self) -> bytes:
        return digest(self.body)

    @property
    def raw(self) -> bytes:
        return digest("raw " + self.body)

    def matches(self, recipe: str, digest: bytes, raw: bytes) -> bool:
        return (recipe, digest, raw) == (self.recipe, self.digest, self.raw)


def new_claim(
    key: str = "key", body: str = "one", *, mode: Mode = Mode.JOINED, lease: float = LEASE
) -> NewClaim:
    """Return a claim with an owner of its own; its retention is `RETENTION`."""
    return NewClaim(
        identity=Identity(digest("scope"), digest(key)),
        mode=mode,
        request=Request(body),
        owner=secrets.token_bytes(16),
        lease=lease,
        retention=RETENTION,
        idle_timeout=30.0,
        lock=int.from_bytes(digest(key)[:8], "big", signed=True),
    )


def judge(new: NewClaim) -> Judge:
    """Return what interprets a row in the way of this claim."""
    return lambda found: decide(found, new.request, new.owner)


def held(new: NewClaim) -> Held:
    """Return what the owner of this claim holds."""
    return Held(new.identity, new.owner, new.retention)


def acquire(new: NewClaim, *, transaction: bool = False) -> Steps[Decision]:
    """Return the program that takes this claim in its mode."""
    if new.mode is Mode.ATOMIC:
        return acquire_atomic(new, judge(new), scripts=False)
    return acquire_joined(new, judge(new), transaction=transaction)


def settle(new: NewClaim, *, begun: bool = True, undo: bool = False) -> Steps[None]:
    """Return the program that settles this claim in its mode, with `ANSWER`."""
    if new.mode is Mode.ATOMIC:
        return settle_atomic(held(new), ANSWER, undo=undo)
    return settle_joined(held(new), ANSWER, begun=begun, undo=undo)


def complete_only(new: NewClaim) -> Steps[None]:
    """Settle up to, and without, the commit."""
    steps = settle(new)
    statement = next(steps)
    while statement != COMMIT:
        statement = steps.send((yield statement))
