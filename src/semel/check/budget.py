"""No more requests than were announced, and no faster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


class BudgetSpentError(Exception):
    """As many requests were sent as were allowed."""


@dataclass
class Budget:
    """Bounds what a run sends.

    Attributes:
        most: requests in all.
        rate: requests a second, on average since the last pause.
        spent: requests so far.
        clock: seconds, only ever growing.
        sleep: waits for seconds.
    """

    most: int
    rate: float
    spent: int = 0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _next: float = 0.0

    async def take(self, requests: int) -> None:
        """Take the right to send some requests, and wait until they may be sent.

        Requests that race are taken at once and sent at once; the pause comes after them.

        Raises:
            BudgetSpentError: the limit would be passed; nothing is taken.
        """
        if self.spent + requests > self.most:
            raise BudgetSpentError(
                f"no more than {self.most} requests are allowed; raise --max-requests"
            )
        self.spent += requests
        now = self.clock()
        wait = self._next - now
        self._next = max(now, self._next) + requests / self.rate
        if wait > 0:
            await self.sleep(wait)
