"""The application's answer while it is held back: nothing of it was sent yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from semel.core.answer import keep_headers
from semel.core.headers import parse_parameterised, values_of
from semel.core.model import Answer
from semel.web.body import declared_length
from semel.web.request import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semel.core.model import HeaderPairs
    from semel.web.asgi_types import Message

# Their Content-Length, if any, speaks of another message (RFC 9110, section 8.6).
_WITHOUT_CONTENT: Final = frozenset({204, 304})


class HeldAnswer:
    """Start and body of an answer, as far as the application has sent them.

    Attributes:
        size: bytes of the body so far.
        declared: its Content-Length, if it has one.
    """

    __slots__ = ("_chunks", "_headers", "_start", "_status", "declared", "size")

    def __init__(self) -> None:
        """Hold nothing."""
        self._start: Message | None = None
        self._status = 0
        self._headers: HeaderPairs = ()
        self._chunks: list[bytes] = []
        self.size = 0
        self.declared: int | None = None

    @property
    def started(self) -> bool:
        """Whether status and headers are there."""
        return self._start is not None

    def begin(self, message: Message) -> None:
        """Take status and headers.

        Raises:
            RuntimeError: they came before, as a server would say.
        """
        if self._start is not None:
            raise RuntimeError("the application started its response twice")
        self._headers = plain(message.get("headers", ()))
        self._status = message["status"]
        if self._status not in _WITHOUT_CONTENT:
            self.declared = declared_length(self._headers)
        # Trailers were not offered; what announces them would wait for them.
        self._start = {**message, "headers": list(self._headers), "trailers": False}

    def add(self, chunk: bytes | bytearray | memoryview) -> None:
        """Take a piece of the body.

        Raises:
            RuntimeError: it comes before status and headers.
        """
        if self._start is None:
            raise RuntimeError("the application sent a body before it started its response")
        if chunk:
            kept = bytes(chunk)  # whoever sent it may use its buffer again
            self._chunks.append(kept)
            self.size += len(kept)

    @property
    def is_event_stream(self) -> bool:
        """Whether the client waits for single events, so that holding back makes no sense."""
        values = values_of(self._headers, b"content-type")
        media = parse_parameterised(values[0]) if len(values) == 1 else None
        return media is not None and media.value == b"text/event-stream"

    @property
    def may_be_cut(self) -> bool:
        """Whether only the application can say where the body ends."""
        return self.declared is None and self._status not in _WITHOUT_CONTENT

    @property
    def is_as_declared(self) -> bool:
        """Whether the body is as long as it was said to be."""
        return self.declared is None or self.size == self.declared

    def exceeds(self, limit: int) -> bool:
        """Say whether the body is, or says that it will be, longer than `limit` bytes."""
        return max(self.size, self.declared or 0) > limit

    def to_answer(self, extra: frozenset[bytes], *, with_body: bool) -> Answer:
        """Return what is stored of it.

        Raises:
            HeaderMalformedError: a header that is kept holds CR, LF or NUL.
        """
        body = b"".join(self._chunks) if with_body else None
        return Answer(self._status, keep_headers(self._headers, extra), body)

    def messages(self, *, last: bool) -> Iterator[Message]:
        """Give back what was held, once, as two messages: all headers, and the body.

        Args:
            last: whether the body ends here.
        """
        if self._start is None:
            return
        yield self._start
        chunks, self._chunks = self._chunks, []
        if chunks or last:
            yield {"type": "http.response.body", "body": b"".join(chunks), "more_body": not last}
