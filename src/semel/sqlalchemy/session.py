"""Sessions that join the claim of the request at hand: `async_sessionmaker(engine)`.

A session that is used inside a guarded request works in the claim's transaction,
whenever it was made; anywhere else it is a session like any other.

* What it did before the claim, such as finding out who calls, is committed before
  the claim opens, and its connection given back: one connection for each request.
* `commit()` and `rollback()` do what they say to this session's own part.
* What is pending when the answer is ready is delivered with it, so that a commit
  after `yield` in a dependency comes too late for nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast, overload

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.ext.asyncio import async_sessionmaker as plain_sessionmaker
from sqlalchemy.orm import Session
from sqlalchemy.util import greenlet_spawn

from semel.claim import AsyncClaim
from semel.errors import StoreError, UsageError
from semel.guard import current
from semel.participants import Participant, early
from semel.sqlalchemy.errors import mapped
from semel.sqlalchemy.parts import refuse_settled
from semel.sqlalchemy.shared import SharedConnection

AnySession = TypeVar("AnySession", bound=AsyncSession)


class Joining:
    """What makes a `Session` class join: `class MySession(Joining, Session)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the session's own
        """Make a session and register it with the request at hand."""
        super().__init__(*args, **kwargs)
        self.semel_claim: AsyncClaim[Any] | None = None
        participants = _participants()
        if participants is not None:
            participants.append(_Participant(self))

    def get_bind(self, *args: Any, **kwargs: Any) -> Engine | Connection:  # noqa: ANN401
        """Return the claim's connection in place of the engine that it is from.

        Raises:
            ClaimClosedError: this session worked in the transaction of a claim that
                is settled now.
        """
        bind: Engine | Connection = super().get_bind(*args, **kwargs)  # type: ignore[misc]
        claim = current()
        if claim is None or not isinstance(bind, Engine):
            return bind
        shared = _shared_of(claim)
        if shared is not None and shared.serves(bind):
            self.semel_claim = claim
            return shared.joined(cast("Session", self))
        if claim is self.semel_claim:
            refuse_settled()
        return bind


class JoiningSession(Joining, Session):
    """A `Session` that joins; give it to an `AsyncSession` as `sync_session_class`."""


class _Participant:
    """A session, as the guard sees it."""

    def __init__(self, session: Joining) -> None:
        self._session: Any = session

    async def let_go(self) -> None:
        if self._session.in_transaction() and self._session.is_active:
            with mapped():
                await greenlet_spawn(_let_go, self._session)

    async def deliver(self) -> None:
        if not self._session.in_transaction():
            return
        if not self._session.is_active:
            raise StoreError("a session of this request has failed and was not rolled back")
        with mapped():
            # A session that has only pending objects joins by this. Its own commit may
            # come later, and finds nothing left to do.
            await greenlet_spawn(self._session.flush)

    async def discard(self) -> None:
        if self._session.in_transaction():
            with mapped():
                await greenlet_spawn(self._session.rollback)


def _let_go(session: Session) -> None:
    """Commit what a session did on a connection of its own, and give that back.

    Its objects are not expired, and a `begin()` block round the handler goes on: to
    SQLAlchemy it is the same transaction, which takes the claim's connection next.
    """
    session.flush()
    transaction = session.get_transaction()
    if transaction is None:
        return
    held = transaction._connections  # noqa: SLF001 - there is no public way to part with one
    for connection, begun, commits, closes in set(held.values()):
        if commits:
            begun.commit()
        if closes:
            connection.close()
    held.clear()


def _participants() -> list[Participant] | None:
    claim = current()
    return early() if claim is None or claim.closed else claim.participants


def _shared_of(claim: AsyncClaim[Any]) -> SharedConnection | None:
    wire = getattr(claim.unit, "wire", None)
    return wire if isinstance(wire, SharedConnection) else None


# The options are those of SQLAlchemy's own.
@overload
def async_sessionmaker(
    engine: AsyncEngine,
    *,
    class_: type[AnySession],
    sync_session_class: type[Session] = ...,
    **options: Any,  # noqa: ANN401
) -> plain_sessionmaker[AnySession]: ...
@overload
def async_sessionmaker(
    engine: AsyncEngine,
    *,
    sync_session_class: type[Session] = ...,
    **options: Any,  # noqa: ANN401
) -> plain_sessionmaker[AsyncSession]: ...
def async_sessionmaker(
    engine: AsyncEngine,
    *,
    class_: type[Any] = AsyncSession,
    sync_session_class: type[Session] = JoiningSession,
    **options: Any,
) -> plain_sessionmaker[Any]:
    """Return SQLAlchemy's `async_sessionmaker`, whose sessions join.

    Args:
        engine: the engine that the store was made with too.
        class_: a class of `AsyncSession`s.
        sync_session_class: a class of sessions of the application's own; one that
            does not join yet is extended so that it does.
        options: all others of SQLAlchemy's `async_sessionmaker`.

    Raises:
        UsageError: not an asynchronous engine.
    """
    if not isinstance(engine, AsyncEngine):
        raise UsageError("give async_sessionmaker an engine made by create_async_engine")
    joining = sync_session_class
    if not issubclass(joining, Joining):
        joining = type(f"Joining{joining.__name__}", (Joining, joining), {})
    return plain_sessionmaker(engine, class_=class_, sync_session_class=joining, **options)
