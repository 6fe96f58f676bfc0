"""The thread of one connection of aiosqlite, for work that has to be done there in one go."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from semel.errors import StoreUnavailableError

T = TypeVar("T")
P = ParamSpec("P")


class DriverThread(Executor):
    """Runs functions in the thread that a connection of aiosqlite lives in.

    They queue with the statements that SQLAlchemy sends there. aiosqlite has no
    public way to run a function; SQLAlchemy uses this queue as well.
    """

    def __init__(self, driver: Any) -> None:  # noqa: ANN401 - aiosqlite's connection
        """Use a connection's thread."""
        self._driver = driver

    @property
    def raw(self) -> sqlite3.Connection:
        """The connection below.

        Raises:
            StoreUnavailableError: it is closed.
        """
        raw: sqlite3.Connection | None = self._driver._connection  # noqa: SLF001 - the only way
        if raw is None:
            raise StoreUnavailableError("the engine has closed this connection")
        return raw

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function run; called from the event loop that the connection serves.

        Raises:
            StoreUnavailableError: the connection is closed.
        """
        _ = self.raw  # raises: once it is closed, nobody takes work from the queue
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - whoever waits gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        # aiosqlite tells this one that the work is done; here nobody asks.
        told = asyncio.get_running_loop().create_future()
        self._driver._tx.put_nowait((told, work))  # noqa: SLF001 - the only way
        return future
