"""The values that everything else speaks in: claims, answers, decisions.

Nothing here does I/O, reads a clock or draws randomness. A claim is the row
that says "this key is taken"; a decision is what its state means for the
request at hand. Decisions are a closed union: `match` them, and let the type
checker say which one was forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Protocol, TypeAlias

HeaderPairs: TypeAlias = tuple[tuple[bytes, bytes], ...]


class Mode(StrEnum):
    """How claim, effect and answer share transactions (rule A2)."""

    ATOMIC = "atomic"
    JOINED = "joined"
    LEASED = "leased"


class Status(IntEnum):
    """The stored states of a claim. Expiry is a comparison, never a state."""

    IN_PROGRESS = 0
    COMPLETED = 1
    IN_DOUBT = 2
    RELEASED = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it is stored and replayed.

    Attributes:
        status: the HTTP status code.
        headers: raw pairs in their order.
        body: the bytes, or `None` where the body was not kept (a stream, a body
            over the limit): such an answer can not be replayed.
    """

    status: int
    headers: HeaderPairs = ()
    body: bytes | None = b""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who claims what: the digests of scope and key (rule K4)."""

    scope: bytes
    key: bytes


class RequestFingerprint(Protocol):
    """What a claim keeps of its request, and how a retry is compared with it."""

    @property
    def recipe(self) -> str:
        """The recipe that `digest` is made with."""

    @property
    def digest(self) -> bytes:
        """The fingerprint: equal for requests that mean the same."""

    @property
    def raw(self) -> bytes:
        """A cheap digest, equal only for byte-identical requests."""

    def matches(self, recipe: str, digest: bytes, raw: bytes) -> bool:
        """Compare with a stored request, by the recipe that was stored with it.

        Raises:
            RecipeUnknownError: this process can not repeat that recipe.
        """


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A claim that a request would like to take.

    Attributes:
        owner: 16 random bytes, new for every acquire; it decides every comparison.
        lease: seconds until a joined or leased claim may be taken over.
        retention: seconds for which the settled claim is kept.
        idle_timeout: seconds after which the database ends a transaction whose
            owner stopped talking.
        lock: the number of the advisory lock that stands for this identity.
    """

    identity: Identity
    mode: Mode
    request: RequestFingerprint
    owner: bytes
    lease: float
    retention: float
    idle_timeout: float
    lock: int


@dataclass(frozen=True, slots=True)
class Found:
    """A claim as the store saw it at one moment, on the store's clock.

    Attributes:
        lease_expires_at: epoch seconds; `None` in atomic mode.
        expires_at: epoch seconds, infinite while an atomic claim is open.
        now: the store's time of this look.
        unheld: atomic and in progress only: nobody holds the claim's lock, so
            its owner is gone although the row is there.
    """

    mode: Mode
    status: Status
    digest: bytes
    raw: bytes
    recipe: str
    owner: bytes
    token: int
    lease_expires_at: float | None
    expires_at: float
    answer: Answer | None
    now: float
    unheld: bool = False


@dataclass(frozen=True, slots=True)
class Execute:
    """The key is ours: run the handler.

    Attributes:
        token: the fencing token of this acquire.
        takeover: another owner held the claim before and lost it.
        place: where the store keeps the row, if it tells; for the completion.
        transaction: the name of a joined claim's transaction, if it has one.
    """

    token: int
    takeover: bool = False
    place: str | None = None
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """The key is settled: answer this."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class InFlight:
    """Another request runs under this key.

    Attributes:
        retry_after: seconds after which a retry is worth while.
    """

    retry_after: float = 1.0


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key was used for another request."""


@dataclass(frozen=True, slots=True)
class StaleKey:
    """The key is older than the retention, so nobody can say whether it ran."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Nobody knows whether the effect happened; an operator has to settle it."""


@dataclass(frozen=True, slots=True)
class NotStored:
    """It ran, but its answer was not kept."""

    status: int


Decision: TypeAlias = Execute | Replay | InFlight | Mismatch | StaleKey | InDoubt | NotStored
