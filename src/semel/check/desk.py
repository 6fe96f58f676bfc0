"""What a probe works with: it sends, counts, waits, and writes down what happened."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from semel.check.budget import Budget
from semel.check.message import Answer, NoAnswerError, Request
from semel.check.operation import Operation, Operations
from semel.check.settings import Settings
from semel.check.wire import Race, Wire
from semel.check.wire.protocol import Loss

MAX_PAUSE = 2.0
FIRST_PAUSE = 0.1

# What says "not now" to a client that retries with its key: RFC 9110 (409, 503),
# RFC 4918 (423), RFC 8470 (425), RFC 6585 (429).
NOT_NOW = frozenset({409, 423, 425, 429, 503})


class Counter(Protocol):
    """Counts the effects that the service has had so far."""

    async def read(self) -> int:
        """Return the number of effects.

        Raises:
            NoAnswerError: the service does not answer.
            CannotCheckError: the answer holds no number where the pointer says.
        """
        ...


class Service(Protocol):
    """A service that the check has started itself, and so may kill."""

    async def kill(self) -> None:
        """End it and all its processes by SIGKILL, and wait until they are gone."""
        ...

    async def start(self) -> None:
        """Start it and wait until it accepts connections.

        Raises:
            CannotCheckError: it ended, or did not listen in time.
        """
        ...


@dataclass(kw_only=True)
class Desk:
    """The tools of one run of one probe.

    Attributes:
        settings: what is checked and how.
        wire: how requests get there.
        operations: makes fresh ones.
        budget: bounds how many requests are sent and how fast.
        counter: counts effects, or None where nothing was given to count with.
        service: the service, where the check has started it, or None.
        evidence: what was sent and what came, a line each.
    """

    settings: Settings
    wire: Wire
    operations: Operations
    budget: Budget
    counter: Counter | None = None
    service: Service | None = None
    evidence: list[str] = field(default_factory=list)

    def operation(self) -> Operation:
        """Return an operation that nobody has asked for."""
        return self.operations.fresh()

    def note(self, text: str) -> None:
        """Write a line into the evidence."""
        self.evidence.append(text)

    async def send(self, request: Request, what: str) -> Answer:
        """Send a request; `what` names it in the evidence ("first", "retry").

        Raises:
            NoAnswerError: no whole answer came.
            BudgetSpentError: no more requests may be sent.
        """
        await self.budget.take(1)
        try:
            answer = await self.wire.send(request)
        except NoAnswerError as error:
            self.note(f"{self.label(request, what)} -> no answer: {error}")
            raise
        self.note(f"{self.label(request, what)} -> {describe(answer)}")
        return answer

    async def attempt(self, request: Request, what: str) -> Answer | NoAnswerError:
        """Send a request; a missing answer is returned instead of raised."""
        try:
            return await self.send(request, what)
        except NoAnswerError as error:
            return error

    async def settle(self, request: Request, what: str) -> Answer | None:
        """Send a request as a client that retries: again while the answer says "not now".

        Waits as Retry-After asks, else twice as long each time, at most `MAX_PAUSE` seconds
        at once and `settings.patience` in all. A missing answer is tried again too.
        `settle_cost` says how many requests that may take.

        Returns:
            The first answer that says something else, or the last one that was seen when
            patience ended; None if none came at all.
        """
        until = time.monotonic() + self.settings.patience
        last: Answer | None = None
        for attempt in itertools.count():
            answer = await self.attempt(request, what)
            if isinstance(answer, Answer):
                last = answer
                if answer.status not in NOT_NOW:
                    return answer
            pause = _pause(answer, attempt)
            if time.monotonic() + pause > until:
                self.note(f"gave up after {self.settings.patience:g} s")
                return last
            await asyncio.sleep(pause)
        raise AssertionError

    async def race(self, requests: Sequence[Request], what: str, *, version: str = "1.1") -> Race:
        """Complete several requests at the same moment."""
        await self.budget.take(len(requests))
        race = await self.wire.together(requests, version=version)
        told = ", ".join(_summed(race.answers))
        self.note(
            f"{len(requests)} x {self.label(requests[0], what)} over HTTP/{race.version}, "
            f"last bytes within {race.width * 1000:.2f} ms -> {told}"
        )
        return race

    async def lose(self, request: Request, how: Loss, what: str) -> Answer:
        """Lose the answer to a request; returns what the client never saw."""
        await self.budget.take(1)
        answer = await self.wire.lose(request, how)
        self.note(f"{self.label(request, what)} -> {describe(answer)}, lost {how.value} the answer")
        return answer

    async def effects(self) -> int | None:
        """Return how many effects there have been, or None where nothing counts them."""
        if self.counter is None:
            return None
        await self.budget.take(1)
        count = await self.counter.read()
        self.note(f"effects so far: {count}")
        return count

    def label(self, request: Request, what: str) -> str:
        """Name a request in the evidence, its key masked."""
        name = self.settings.key_header.lower().encode("ascii")
        keys = [value for header, value in request.headers if header.lower() == name]
        masked = " and ".join(mask(key) for key in keys) if keys else "none"
        return f"{what}: {request.method} (key {masked}, body of {len(request.body)} bytes)"


def mask(key: bytes) -> str:
    """Return what a report shows of a key: enough to tell two apart, too little to use."""
    return "#" + hashlib.sha256(key.strip().strip(b'"')).hexdigest()[:8]


def describe(answer: Answer) -> str:
    """Return an answer in a few words."""
    digest = hashlib.sha256(answer.body).hexdigest()[:8]
    return (
        f"{answer.status} in {answer.seconds * 1000:.0f} ms, "
        f"{len(answer.body)} bytes (sha256 {digest})"
    )


def _summed(answers: Sequence[Answer | NoAnswerError]) -> list[str]:
    told: dict[str, int] = {}
    for answer in answers:
        name = str(answer.status) if isinstance(answer, Answer) else "no answer"
        told[name] = told.get(name, 0) + 1
    return [f"{count} x {name}" for name, count in sorted(told.items())]


def settle_cost(settings: Settings) -> int:
    """Return how many requests `Desk.settle` sends at most."""
    tries, waited = 1, 0.0
    while (waited := waited + _backoff(tries - 1)) <= settings.patience:
        tries += 1
    return tries


def _pause(answer: Answer | NoAnswerError, attempt: int) -> float:
    """Return the seconds to wait: never less than without Retry-After, so that cost is bounded."""
    asked = answer.get("retry-after") if isinstance(answer, Answer) else None
    seconds = float(asked) if asked and asked.isascii() and asked.isdigit() else 0.0
    return min(max(seconds, _backoff(attempt)), MAX_PAUSE)


def _backoff(attempt: int) -> float:
    return float(min(FIRST_PAUSE * 2 ** min(attempt, 16), MAX_PAUSE))
