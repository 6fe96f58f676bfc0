"""The body of a guarded request: read whole, counted, kept, handed on (rule F7).

A guarded request is compared with what was sent before under its key, so its
body has to be there before the handler runs. Up to 64 KiB it is kept in memory,
above that in a temporary file. The handler then receives it again, and after
its end whatever the server says next: a disconnect is never invented, and never
kept back (rule W1).
"""

from __future__ import annotations

import tempfile
from typing import IO, TYPE_CHECKING, Final, Self

from semel.core.headers import values_of
from semel.errors import BodyTooLargeError

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    values = set(values_of(headers, b"content-length"))
    if len(values) != 1:
        return None
    digits = values.pop().strip(b" \t")
    if not digits.isdigit():
        return None
    digits = digits.lstrip(b"0") or b"0"
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS


class RequestBody:
    """Reads a body once and hands it out as often as it is asked for.

    To be closed, or used as a context manager: the temporary file goes then.
    """

    __slots__ = ("_chunks", "_declared", "_file", "_gone", "_limit", "_receive", "_sent", "_size")

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
        self._chunks: Sequence[bytes] | None = None
        self._file: IO[bytes] | None = None
        self._size = 0
        self._sent = 0
        self._gone = False

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

    @property
    def was_read(self) -> bool:
        """Whether something was taken from the server, so that it must be handed on."""
        return self._chunks is not None

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
        if self._chunks is None:
            self._refuse_above_limit(self._declared or 0)
            await self._read()
        if self._gone:
            raise ClientGoneError
        self._refuse_above_limit(self._size)
        if self._file is not None:
            self._file.seek(0)
            return self._file.read()
        return b"".join(self._chunks or ())

    async def receive(self) -> Message:
        """Be the `receive` of the application: the body again, then the server's own words."""
        if self._chunks is None or self._gone or self._sent < 0:
            return await self._receive()
        chunk = self._next()
        self._sent += len(chunk)
        more = self._sent < self._size
        if not more:
            self._sent = -1
        return {"type": "http.request", "body": chunk, "more_body": more}

    def _next(self) -> bytes:
        if self._file is None:
            return b"".join(self._chunks or ())
        # Plain calls in the event loop: this is the page cache, not a disk.
        self._file.seek(self._sent)
        return self._file.read(SPOOL_BYTES)

    def _refuse_above_limit(self, size: int) -> None:
        if size > self._limit:
            raise BodyTooLargeError(self._limit)

    async def _read(self) -> None:
        """Take the body from the server, up to the limit and not a message further."""
        self._chunks = chunks = []
        more = True
        while more and self._size <= self._limit:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._gone = True
                return
            chunk = bytes(message.get("body", b""))
            more = message.get("more_body", False)
            self._size += len(chunk)
            if self._file is not None:
                self._file.write(chunk)
            elif chunk:
                chunks.append(chunk)
                if self._size > SPOOL_BYTES:
                    self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
                    self._file.writelines(chunks)
                    chunks.clear()
