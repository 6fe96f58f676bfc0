"""What a probe can do with a connection. `http.py` does it over sockets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from semel.check.message import Answer, NoAnswerError, Request


class UnsupportedError(Exception):
    """This wire can not do that; the text says why, for the report."""


class Loss(StrEnum):
    """How an answer is lost after the service has finished it."""

    BEFORE = "before"  # the connection is reset before the first byte of the answer
    WITHIN = "within"  # half of the answer arrives, then the connection is reset


@dataclass(frozen=True, slots=True)
class Race:
    """Requests that were completed at the same moment.

    Attributes:
        answers: one for each request, in their order; a `NoAnswerError` where none came.
        width: seconds between the first and the last request's last byte leaving.
        version: `1.1` (a connection each) or `2` (streams of one connection).
    """

    answers: tuple[Answer | NoAnswerError, ...]
    width: float
    version: str = "1.1"


class Wire(Protocol):
    """A way to a service. Every method may be called by several tasks at once."""

    @property
    def versions(self) -> tuple[str, ...]:
        """HTTP versions that races can be run over: `("1.1",)` or `("1.1", "2")`."""
        ...

    async def send(self, request: Request) -> Answer:
        """Send a request and read its answer.

        Raises:
            NoAnswerError: no whole answer came.
        """
        ...

    async def together(self, requests: Sequence[Request], *, version: str = "1.1") -> Race:
        """Send all but the last byte of each request, then the last bytes at once."""
        ...

    async def chase(self, first: Request, second: Request) -> tuple[Answer, Answer]:
        """Send the second the moment that the first byte of the first one's answer arrives.

        Raises:
            NoAnswerError: one of the two got no whole answer.
            UnsupportedError: this wire can not.
        """
        ...

    async def lose(self, request: Request, how: Loss) -> Answer:
        """Let the service finish its answer, and lose it on the way.

        Returns:
            What the service answered, which the client never saw.

        Raises:
            NoAnswerError: the service itself gave no answer.
            UnsupportedError: this wire can not.
        """
        ...

    async def leave(self, request: Request, after: float) -> None:
        """Send a whole request, wait `after` seconds, and close the connection unread.

        Raises:
            UnsupportedError: this wire can not.
        """
        ...

    async def break_off(self, request: Request) -> None:
        """Announce the whole body, send half of it, and close the connection.

        Raises:
            UnsupportedError: this wire can not.
        """
        ...

    async def aclose(self) -> None:
        """Close what is open."""
        ...
