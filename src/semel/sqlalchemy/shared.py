"""A claim's connection, as sessions and `claim.tx` work on it together.

Each gets a `Connection` of SQLAlchemy's of its own. What that takes for a connection
out of the pool is a *seat* at the real one: statements go through, and the ends of a
transaction go to the claim's `Parts`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from sqlalchemy.engine import Connection, Engine, RootTransaction, TwoPhaseTransaction
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.orm import Session

from semel.errors import UsageError
from semel.sqlalchemy.parts import Part, Parts


class SharedConnection(ABC):
    """The connection that a claim's effect is written on.

    Attributes:
        parts: what sessions and `tx` did in the claim's transaction.
    """

    def __init__(self, engine: AsyncEngine, parts: Parts) -> None:
        """Let nobody join yet."""
        self.parts = parts
        self._engine = engine
        self._tx: AsyncConnection | None = None
        self._joined: WeakKeyDictionary[Session, JoinedConnection] = WeakKeyDictionary()

    @property
    @abstractmethod
    def pooled(self) -> Any:  # noqa: ANN401 - SQLAlchemy's own proxy
        """The pool's proxy of the connection."""

    @property
    @abstractmethod
    def is_valid(self) -> bool:
        """Whether the connection can be used, as far as is known."""

    def attribute(self, name: str) -> Any:  # noqa: ANN401 - whatever the driver has
        """Return what the pool's proxy has under a name."""
        return getattr(self.pooled, name)

    @abstractmethod
    def cursor(self, seat: Seat, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the driver's own
        """Return a cursor for the one who sits there."""

    @abstractmethod
    def invalidate(self, error: BaseException | None) -> None:
        """Face that the connection is in doubt: SQLAlchemy cut a statement short."""

    @property
    def tx(self) -> AsyncConnection:
        """A connection for statements outside every session."""
        if self._tx is None:
            joined = OpenConnection(self._engine.sync_engine, OpenSeat(self))
            self._tx = AsyncConnection(self._engine, joined)
        return self._tx

    @property
    def touched(self) -> bool:
        """Whether a session or `tx` did anything."""
        return self.parts.touched

    def joined(self, session: Session) -> JoinedConnection:
        """Return the connection on which a session works in this transaction."""
        self.parts.refuse_if_over()
        found = self._joined.get(session)
        if found is None:
            joined = JoinedConnection(self._engine.sync_engine, Seat(self))
            found = self._joined[session] = joined
        return found

    def serves(self, engine: Engine) -> bool:
        """Say whether an engine takes its connections from the same pool."""
        return engine.pool is self._engine.sync_engine.pool


class Seat:
    """What a session's `Connection` takes for its pooled DBAPI connection.

    Everything but the ends of a transaction goes to the real one.

    Attributes:
        beginning: SQLAlchemy is telling those who listen that a transaction begins.
    """

    # The driver really is in autocommit mode; SQLAlchemy must not conclude that a
    # rollback can be left out.
    autocommit = False

    def __init__(self, shared: SharedConnection) -> None:
        """Sit down at a connection that others use too."""
        self.beginning = False
        self._shared = shared
        self._parts = shared.parts
        self._part: Part | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the driver has
        """Be the pooled connection."""
        return self._shared.attribute(name)

    @property
    def is_valid(self) -> bool:
        """Whether the connection can be used."""
        return self._shared.is_valid

    def cursor(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the driver's own
        """Return a cursor; raises `ClaimClosedError`, `StoreUnavailableError`."""
        self._parts.refuse_if_over()
        return self._shared.cursor(self, *args, **kwargs)

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

    def _close_special(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own
        """Stay: SQLAlchemy closes by this where it has just rolled back."""

    def invalidate(self, e: BaseException | None = None, soft: bool = False) -> None:  # noqa: FBT001, FBT002 - SQLAlchemy's own signature
        """Take the claim's connection for broken."""
        del soft
        self._parts.broken = True
        self._shared.invalidate(e)

    def detach(self) -> NoReturn:
        """Refuse."""
        raise UsageError("a claim's connection belongs to the claim: it can not be detached")


class OpenSeat(Seat):
    """The same for `claim.tx`, which has no transaction of its own to end."""

    def begin(self) -> None:
        """Begin nothing but the claim's transaction, where it is not open yet."""
        self._parts.open()

    def cursor(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the driver's own
        """Return a cursor of the driver's; raises `ClaimClosedError`."""
        self._parts.note(self)
        return super().cursor(*args, **kwargs)


class JoinedConnection(Connection):
    """A `Connection` in the middle of a claim's transaction."""

    def __init__(self, engine: Engine, seat: Seat) -> None:
        """Join; nothing is sent."""
        self._seat = seat
        super().__init__(
            engine,
            connection=seat,  # type: ignore[arg-type] # as good as one
            # After a broken connection it would go on outside the claim, on another one.
            _allow_revalidate=False,
        )

    def begin(self) -> RootTransaction:
        """Begin a part of the claim's transaction."""
        self._seat.begin()
        self._seat.beginning = True
        try:
            return super().begin()
        finally:
            self._seat.beginning = False

    def begin_twophase(self, xid: Any | None = None) -> TwoPhaseTransaction:  # noqa: ANN401
        """Refuse."""
        del xid
        raise UsageError("a session with twophase=True can not join a claim's transaction")

    def execution_options(self, **opt: Any) -> Connection:  # noqa: ANN401 - SQLAlchemy's own
        """Set options, but not those of a transaction that is not this session's own."""
        if "isolation_level" in opt:
            raise UsageError(
                "isolation_level inside a guarded request: the transaction is the claim's; set "
                "the level where the engine is made"
            )
        return super().execution_options(**opt)


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

    def _execute_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - SQLAlchemy's own
        """Begin before SQLAlchemy asks for a cursor: what it raises there it would wrap."""
        self._seat.begin()
        return super()._execute_context(*args, **kwargs)

    @staticmethod
    def _refuse(name: str) -> NoReturn:
        raise UsageError(
            f"{name}() on a claim's connection: Semel commits effect and answer together when "
            "the handler returns; for a part that may be undone use begin_nested()"
        )
