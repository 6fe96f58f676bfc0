"""The body of a guarded request: counted, kept, handed on (rule F7).

A guarded request is compared with what was sent before under its key, so its
whole body has to be there before the handler runs, whether the guard has read it
or a framework did. Up to 64 KiB it is kept in memory, above that in a temporary
file. The handler receives it again, and after its end whatever the server says
next: a disconnect is never invented, and never kept back (rule W1).
"""

from __future__ import annotations

import tempfile
from io import SEEK_END
from typing import IO, TYPE_CHECKING, Final, Self

from semel.core.headers import values_of
from semel.errors import BodyTooLargeError

if TYPE_CHECKING:
    from types import TracebackType

    from semel.core.model import HeaderPairs
    from semel.web.asgi_types import Message, Receive

SPOOL_BYTES: Final = 64 * 1024
# More digits than this are more bytes than anybody may send, and `int` of
# thousands of digits raises.
_MAX_DIGITS: Final = 18


class ClientGoneError(Exception):
    """The client left while its request was still being read: nobody to answer."""


def declared_length(headers: HeaderPairs) -> int | None:
    """Return what Content-Length says; `None` where it is missing or unusable.

    Lengths that no integer column could hold come out as a number that is large
    enough to exceed every limit.
    """
    values = values_of(headers, b"content-length")
    if not values or any(value != values[0] for value in values[1:]):
        return None
    digits = values[0].strip(b" \t")
    if not digits.isdigit():
        return None
    digits = digits.lstrip(b"0") or b"0"
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS


class RequestBody:
    """Takes a body from the server once and hands it out as often as it is asked for.

    Who reads first does not matter: what the application receives is kept for the
    guard, and what the guard has read is received by the application.

    To be closed, or used as a context manager: the temporary file goes then.
    """

    __slots__ = (
        "_declared",
        "_ended",
        "_file",
        "_gone",
        "_limit",
        "_memory",
        "_receive",
        "_sent",
        "_size",
        "was_read",
    )

    def __init__(self, receive: Receive, limit: int, headers: HeaderPairs = ()) -> None:
        """Prepare to read; nothing is received yet.

        Args:
            receive: the server's.
            limit: bytes above which the body is refused.
            headers: the request's raw pairs, for its Content-Length.
        """
        self._receive = receive
        self._limit = limit
        self._declared = declared_length(headers)
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._size = 0
        self._ended = False
        self._gone = False
        # How much the application has received; below 0 once it knows of the end.
        self._sent = 0
        # Whether something was taken from the server, so that it must be handed on.
        self.was_read = False

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Let go of the temporary file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def read(self) -> bytes:
        """Return the whole body.

        Raises:
            BodyTooLargeError: it exceeds the limit, or says beforehand that it will.
            ClientGoneError: the client left before its end.
        """
        self._refuse_above_limit(self._declared or 0)
        while not (self._ended or self._gone):
            self._refuse_above_limit(self._size)
            await self._take()
        if self._gone:
            raise ClientGoneError
        self._refuse_above_limit(self._size)
        if self._file is not None:
            self._file.seek(0)
            return self._file.read()
        return bytes(self._memory)

    async def receive(self) -> Message:
        """Be the `receive` of the application: the body, then the server's own words.

        Raises:
            BodyTooLargeError: the body exceeds the limit.
        """
        if self._sent < 0 or self._gone:
            return await self._receive()
        if self._sent == self._size and not self._ended:
            self._refuse_above_limit(self._declared or 0)
            message = await self._take()
            if self._gone:
                return message
            self._refuse_above_limit(self._size)
        chunk = self._next()
        self._sent += len(chunk)
        more = self._sent < self._size or not self._ended
        if not more:
            self._sent = -1
        return {"type": "http.request", "body": chunk, "more_body": more}

    def _next(self) -> bytes:
        if self._file is None:
            return bytes(self._memory[self._sent :])
        # Plain calls in the event loop: this is the page cache, not a disk.
        self._file.seek(self._sent)
        return self._file.read(SPOOL_BYTES)

    def _refuse_above_limit(self, size: int) -> None:
        if size > self._limit:
            raise BodyTooLargeError(self._limit)

    async def _take(self) -> Message:
        """Take one message from the server, and keep its piece of the body."""
        self.was_read = True
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._gone = True
            return message
        chunk = message.get("body", b"")
        self._ended = not message.get("more_body", False)
        self._size += len(chunk)
        if self._file is not None:
            self._file.seek(0, SEEK_END)
            self._file.write(chunk)
        else:
            self._memory += chunk
            if self._size > SPOOL_BYTES:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
                self._file.write(self._memory)
                self._memory.clear()
        return message
