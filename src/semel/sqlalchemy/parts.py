"""How several sessions share the one transaction of a claim (rule W2).

Each session works on a `Connection` of SQLAlchemy's of its own, over one and the
same connection of the driver. What it takes for its transaction is a *part* of the
claim's: it begins at a savepoint, `commit()` keeps it, `rollback()` goes back to
that savepoint. Only the claim's settlement commits.

The first part begins at the savepoint that the claim has anyway, so that the usual
handler, one session and one commit, costs no statement more. Savepoints are a
stack: going back to one also undoes what others did since. Where that would undo
what another session believes to be committed, the rollback refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from sqlalchemy.engine import Connection, Engine, RootTransaction, TwoPhaseTransaction

from semel.errors import ClaimClosedError, UsageError

# Sends one text without parameters, from inside a greenlet of SQLAlchemy's.
Command = Callable[[str], object]

CLAIM_SAVEPOINT = "semel_handler"


class Part:
    """A stretch of the claim's transaction, from a session's begin to its commit.

    Attributes:
        savepoint: where it began; empty for work that nobody can take back alone.
        kept: its session has committed it.
        lost: another session went back to a savepoint before it.
    """

    __slots__ = ("kept", "lost", "owner", "savepoint")

    def __init__(self, owner: object, savepoint: str, *, kept: bool = False) -> None:
        """Begin at a savepoint."""
        self.owner = owner
        self.savepoint = savepoint
        self.kept = kept
        self.lost = False


class Parts:
    """All parts of one claim's transaction, in the order in which they began.

    Attributes:
        has_savepoint: the claim has a savepoint of its own (atomic mode).
        over: the transaction has ended.
    """

    def __init__(self, command: Command) -> None:
        """Begin with nothing done in the transaction."""
        self.has_savepoint = False
        self.over = False
        self._command = command
        self._parts: list[Part] = []
        self._count = 0

    @property
    def touched(self) -> bool:
        """Whether anything was done in the transaction."""
        return self._count > 0

    def begin(self, owner: object) -> Part:
        """Begin a part at a savepoint of its own."""
        self.refuse_if_over()
        savepoint = CLAIM_SAVEPOINT
        if self._parts or not self.has_savepoint:
            savepoint = f"semel_part_{self._count}"
            self._command(f"SAVEPOINT {savepoint}")
        return self._add(Part(owner, savepoint))

    def note(self, owner: object) -> None:
        """Note work outside every session, which counts as kept at once."""
        self.refuse_if_over()
        if not self._parts or self._parts[-1].owner is not owner:
            self._add(Part(owner, "", kept=True))

    def keep(self, part: Part) -> None:
        """Keep a part, as far as its session is concerned."""
        if part.lost:
            self._refuse_lost()
        part.kept = True
        if self.over or part.savepoint == CLAIM_SAVEPOINT:
            return
        # To release a savepoint releases those of all later parts as well.
        if self._parts[-1] is part:
            self._command(f"RELEASE SAVEPOINT {part.savepoint}")

    def undo(self, part: Part) -> None:
        """Go back to where a part began.

        Raises:
            UsageError: that would undo what another session has committed.
        """
        if self.over or part.lost or part not in self._parts:
            return
        later = self._parts[self._parts.index(part) + 1 :]
        others = [one for one in later if one.owner is not part.owner]
        if any(one.kept for one in others):
            raise UsageError(
                "this rollback would undo what another session of the same request has "
                "committed since: they share the claim's transaction; use one session, or "
                "roll back before the other one begins"
            )
        self._command(f"ROLLBACK TO SAVEPOINT {part.savepoint}")
        for one in others:
            one.lost = True
        del self._parts[self._parts.index(part) :]

    def refuse_if_over(self) -> None:
        """Raise `ClaimClosedError` once the transaction has ended."""
        if self.over:
            refuse_settled()

    def _add(self, part: Part) -> Part:
        self._parts.append(part)
        self._count += 1
        return part

    @staticmethod
    def _refuse_lost() -> NoReturn:
        raise UsageError(
            "another session of the same request has rolled back to before this one began: "
            "what it did is gone"
        )


class Seat:
    """What a session's `Connection` takes for its pooled DBAPI connection.

    Everything but the ends of a transaction goes to the real one.
    """

    # The driver really is in autocommit mode; SQLAlchemy must not conclude that a
    # rollback can be left out.
    autocommit = False

    def __init__(self, pooled: Any, parts: Parts) -> None:  # noqa: ANN401 - SQLAlchemy's own proxy
        """Sit down at a connection that others use too."""
        self._pooled = pooled
        self._parts = parts
        self._part: Part | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the driver has
        """Be the pooled connection."""
        return getattr(self._pooled, name)

    def cursor(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the driver's own
        """Return a cursor of the driver's; raises `ClaimClosedError`."""
        self._parts.refuse_if_over()
        return self._pooled.cursor(*args, **kwargs)

    def begin(self) -> None:
        """Begin a part."""
        self._part = self._parts.begin(self)

    def commit(self) -> None:
        """Keep the part."""
        part, self._part = self._part, None
        if part is not None:
            self._parts.keep(part)

    def rollback(self) -> None:
        """Undo the part."""
        part, self._part = self._part, None
        if part is not None:
            self._parts.undo(part)

    def close(self) -> None:
        """Stay: the claim gives the connection back."""


class OpenSeat(Seat):
    """The same for `claim.tx`, which has no transaction of its own to end."""

    def begin(self) -> None:
        """Begin nothing: the claim's transaction is open."""

    def cursor(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the driver's own
        """Return a cursor of the driver's; raises `ClaimClosedError`."""
        self._parts.note(self)
        return super().cursor(*args, **kwargs)


class JoinedConnection(Connection):
    """A `Connection` in the middle of a claim's transaction."""

    def __init__(self, engine: Engine, seat: Seat) -> None:
        """Join; nothing is sent."""
        self._seat = seat
        super().__init__(engine, connection=seat)  # type: ignore[arg-type] # as good as one

    def begin(self) -> RootTransaction:
        """Begin a part of the claim's transaction."""
        self._seat.begin()
        return super().begin()

    def begin_twophase(self, xid: Any | None = None) -> TwoPhaseTransaction:  # noqa: ANN401
        """Refuse."""
        del xid
        raise UsageError("a session with twophase=True can not join a claim's transaction")


class OpenConnection(JoinedConnection):
    """A `Connection` for `claim.tx`, which has no transaction of its own to end."""

    def commit(self) -> None:
        """Refuse."""
        self._refuse("commit")

    def rollback(self) -> None:
        """Refuse."""
        self._refuse("rollback")

    def close(self) -> None:
        """Refuse."""
        self._refuse("close")

    @staticmethod
    def _refuse(name: str) -> NoReturn:
        raise UsageError(
            f"{name}() on a claim's connection: Semel commits effect and answer together when "
            "the handler returns; for a part that may be undone use begin_nested()"
        )


def refuse_settled() -> NoReturn:
    """Raise `ClaimClosedError`, saying what to do instead."""
    raise ClaimClosedError(
        "the claim is settled, and this session worked in its transaction: do later work in a "
        "new session, or end the dependency before the answer: Depends(..., scope='function')"
    )
