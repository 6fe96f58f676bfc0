"""Lends workers, and makes the writers of this process queue.

SQLite itself lets waiting writers in at random, and each would occupy a thread.
Here they wait first come, first served, holding neither a thread nor a
connection (rule A9); a writer that has come to the front takes a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from semel.errors import StoreConflictError, StoreUnavailableError, UsageError
from semel.sqlite.blocking import Connection
from semel.sqlite.worker import Worker, finish


@dataclass(frozen=True, slots=True)
class Loan:
    """A worker that was lent.

    Attributes:
        worker: nobody else uses it until it is given back.
        writes: whether the place at the front of the writers goes with it.
    """

    worker: Worker
    writes: bool


class Pool:
    """A bounded number of workers, for one event loop.

    Attributes:
        closed: nothing is lent any more.
    """

    def __init__(self, connect: Callable[[], Connection], size: int, patience: float) -> None:
        """Open nothing yet.

        Args:
            connect: opens a connection.
            size: connections at most.
            patience: seconds to wait in each of the two queues.
        """
        self._connect = connect
        self._patience = patience
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writers = asyncio.Lock()
        self._places = asyncio.Semaphore(size)
        self._idle: list[Worker] = []
        self.closed = False

    async def take(self, *, writes: bool) -> Loan:
        """Wait for a worker.

        Args:
            writes: queue behind the other writers of this process first.

        Raises:
            StoreConflictError: the writers ahead took too long.
            StoreUnavailableError: no connection became free, or the pool is closed.
            UsageError: this is not the event loop that the pool serves.
        """
        self._bind()
        if writes:
            await self._queue()
        try:
            worker = await self._worker()
        except BaseException:
            if writes:
                self._writers.release()
            raise
        return Loan(worker, writes)

    async def line_up(self) -> Callable[[], None]:
        """Wait for the writers ahead, for one who brings a connection of its own.

        Returns:
            What lets the next writer in.

        Raises:
            StoreConflictError, StoreUnavailableError, UsageError: as `take` does.
        """
        self._bind()
        await self._queue()
        return self._writers.release

    def give(self, loan: Loan) -> None:
        """Take a worker back, whose thread is at rest and has no transaction open."""
        if self.closed or loan.worker.broken:
            loan.worker.retire()
        else:
            self._idle.append(loan.worker)
        self._places.release()
        if loan.writes:
            self._writers.release()

    async def aclose(self) -> None:
        """Close what is idle now, and what is lent as soon as it comes back."""
        self.closed = True
        idle, self._idle = self._idle, []
        await finish(asyncio.gather(*(worker.aclose() for worker in idle)))

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise UsageError("a store serves one event loop: make one store for each")
        self._refuse_if_closed()

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise StoreUnavailableError("the store is closed")

    async def _queue(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._writers.acquire()
        except TimeoutError:
            raise StoreConflictError(
                f"other writers of this process were busy for {self._patience:g} s: "
                "keep the handlers' transactions short"
            ) from None

    async def _worker(self) -> Worker:
        try:
            async with asyncio.timeout(self._patience):
                await self._places.acquire()
        except TimeoutError:
            raise StoreUnavailableError(
                f"no connection was free for {self._patience:g} s: give the store a larger size"
            ) from None
        try:
            self._refuse_if_closed()
            # The one that was used last has the warmest cache.
            return self._idle.pop() if self._idle else Worker(self._connect)
        except BaseException:
            self._places.release()
            raise
