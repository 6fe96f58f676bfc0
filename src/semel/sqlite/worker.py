"""A connection and the one thread that ever touches it.

Work goes over in hops. A hop that has started is always waited for, whatever
happens to the task that asked: when it is cancelled the running statement is
interrupted, and only when the thread is idle again does the cancellation go on.
So a worker that somebody holds is never busy with somebody else's statement.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from semel.sqlite.blocking import Connection
from semel.sqlite.errors import is_broken

T = TypeVar("T")

# Seconds until a hop is interrupted again: the first interrupt may have fallen
# between two statements.
INSIST = 0.05


class Worker:
    """Runs work on its connection, one hop at a time.

    Attributes:
        in_transaction: whether the last hop left a transaction open.
        broken: the connection is in doubt and must not be lent again.
    """

    def __init__(self, connect: Callable[[], Connection], executor: Executor | None = None) -> None:
        """Start nothing yet.

        Args:
            connect: opens the connection, in the thread that will use it.
            executor: that thread, where there is one already.
        """
        self.in_transaction = False
        self.broken = False
        self._connect = connect
        self._connection: Connection | None = None
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="semel-sqlite")
        self._switch = threading.Lock()
        self._stop: threading.Event | None = None

    async def hop(self, work: Callable[[Connection], T], *, leave_open: bool = True) -> T:
        """Do some work in the thread and wait for it.

        Args:
            work: gets the connection.
            leave_open: whether a transaction may stay open afterwards.

        Raises:
            asyncio.CancelledError: after the thread has come to rest.
        """
        stop = threading.Event()
        job = self._executor.submit(self._in_thread, work, stop, leave_open=leave_open)
        future = asyncio.wrap_future(job)
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            if not job.cancel():
                await self._bring_to_rest(future, stop)
            raise
        return future.result()

    def interrupt(self) -> None:
        """Make what runs now, if anything does, fail soon; nobody waits for it."""
        with self._switch:
            if self._stop is not None and self._connection is not None:
                self._stop.set()
                self._connection.interrupt()

    async def end(self) -> None:
        """Roll back what is open, whatever happens meanwhile; raises no error."""
        job = self._executor.submit(self._roll_back)
        await finish(asyncio.wrap_future(job))

    def retire(self) -> None:
        """Close the connection and let the thread end; nobody waits for it."""
        self._executor.submit(self._close)
        self._executor.shutdown(wait=False)

    async def aclose(self) -> None:
        """Close the connection and wait until the thread has ended."""
        await finish(asyncio.wrap_future(self._executor.submit(self._close)))
        self._executor.shutdown()  # idle by now

    def _in_thread(
        self, work: Callable[[Connection], T], stop: threading.Event, *, leave_open: bool
    ) -> T:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connect()
        connection.be_patient()
        connection.stop = stop
        with self._switch:
            self._stop = stop
        try:
            return work(connection)
        except Exception as error:
            self.broken = self.broken or is_broken(error) or is_broken(error.__cause__)
            raise
        finally:
            with self._switch:
                self._stop = None
            if leave_open:
                self.in_transaction = connection.in_transaction
            else:
                self._roll_back()

    def _roll_back(self) -> None:
        if self._connection is not None:
            try:
                self._connection.rollback()
            except Exception:  # noqa: BLE001 - in doubt: closing it rolls back
                self.broken = True
        self.in_transaction = False

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _bring_to_rest(self, future: asyncio.Future[T], stop: threading.Event) -> None:
        stop.set()
        while not future.done():
            self.interrupt()
            try:
                await asyncio.wait({future}, timeout=INSIST)
            except asyncio.CancelledError:
                continue  # the caller raises it, once the thread rests
        future.exception()  # nobody else will look


async def finish(future: asyncio.Future[T]) -> T:
    """Wait until something is done, and only then let a cancellation through."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()
        raise cancelled
    return future.result()
