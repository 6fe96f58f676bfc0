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
from typing import NoReturn

from semel.errors import ClaimClosedError, StoreUnavailableError, UsageError

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
        has_savepoint: the claim has a savepoint of its own.
        over: the transaction has ended.
        broken: its connection is in doubt: nothing of it will be committed.
    """

    def __init__(self, command: Command, begin: Callable[[], object] | None = None) -> None:
        """Begin with nothing done in the transaction.

        Args:
            command: sends a text to the database.
            begin: makes sure that the transaction is open, where it begins at the
                handler's first statement; called in a greenlet of SQLAlchemy's.
        """
        self.has_savepoint = False
        self.over = False
        self.broken = False
        self._command = command
        self._begin = begin
        self._parts: list[Part] = []
        self._count = 0

    @property
    def touched(self) -> bool:
        """Whether anything was done in the transaction."""
        return self._count > 0

    def open(self) -> None:
        """Make sure that the transaction is open.

        Raises:
            ClaimClosedError: it is over.
            StoreError: it can not begin, or its connection is broken.
        """
        self.refuse_if_over()
        if self._begin is not None:
            self._begin()

    def begin(self, owner: object) -> Part:
        """Begin a part at a savepoint of its own."""
        self.open()
        savepoint = CLAIM_SAVEPOINT
        number, self._count = self._count, self._count + 1
        if self._parts or not self.has_savepoint:
            savepoint = f"semel_part_{number}"
            self._command(f"SAVEPOINT {savepoint}")
        return self._add(Part(owner, savepoint))

    def note(self, owner: object) -> None:
        """Note work outside every session, which counts as kept at once."""
        self.open()
        if not self._parts or self._parts[-1].owner is not owner:
            self._count += 1
            self._add(Part(owner, "", kept=True))

    def keep(self, part: Part) -> None:
        """Keep a part, as far as its session is concerned."""
        if part.lost:
            self._refuse_lost()
        self._refuse_if_broken()
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
        if self.over or self.broken or part.lost or part not in self._parts:
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
        """Raise an error once nothing can be done in the transaction any more.

        Raises:
            ClaimClosedError: it has ended.
            StoreUnavailableError: its connection is broken.
        """
        if self.over:
            refuse_settled()
        self._refuse_if_broken()

    def _refuse_if_broken(self) -> None:
        if self.broken:
            raise StoreUnavailableError(
                "a statement of this request was cut short, and the claim's connection with "
                "it: nothing of this request will be committed"
            )

    def _add(self, part: Part) -> Part:
        self._parts.append(part)
        return part

    @staticmethod
    def _refuse_lost() -> NoReturn:
        raise UsageError(
            "another session of the same request has rolled back to before this one began: "
            "what it did is gone"
        )


def refuse_settled() -> NoReturn:
    """Raise `ClaimClosedError`, saying what to do instead."""
    raise ClaimClosedError(
        "the claim is settled, and this session worked in its transaction: do later work in a "
        "new session, or end the dependency before the answer: Depends(..., scope='function')"
    )
