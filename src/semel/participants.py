"""Who else works in a claim's transaction: sessions that join it (rule W2).

A session of an object mapper keeps changes in memory, and its application may
commit it long after the answer is ready. So it registers where it is made, is told
to let go of its own connection before the claim opens one, and to deliver what is
pending before the claim is settled, or to discard it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Participant(Protocol):
    """Something with changes of its own, such as an object mapper's session."""

    async def let_go(self) -> None:
        """Commit what was done before the claim, and hold no connection; raises `StoreError`."""

    async def deliver(self) -> None:
        """Send what is pending into the claim's transaction; raises `StoreError`."""

    async def discard(self) -> None:
        """Drop what is pending: its claim failed, and no later commit may bring it about.

        Raises `StoreError`, which changes nothing: the database rolls back anyway.
        """


_early: ContextVar[list[Participant] | None] = ContextVar("semel_participants", default=None)


@contextmanager
def gathering() -> Iterator[None]:
    """Collect who registers in a request before its key is claimed."""
    token = _early.set([])
    try:
        yield
    finally:
        _early.reset(token)


def early() -> list[Participant] | None:
    """Return who registered before the claim; `None` where nobody is collecting."""
    return _early.get()
