"""What wires into this very process share: no network, so nothing can be cut on its way."""

from __future__ import annotations

from urllib.parse import urlsplit

from semel.check.message import Answer, NoAnswerError, RawHeaders, Request
from semel.check.wire.protocol import UnsupportedError

IN_PROCESS = "http://testserver"


def whole(answer: Answer | NoAnswerError) -> Answer:
    """Return an answer, or raise what stands in its place."""
    if isinstance(answer, NoAnswerError):
        raise answer
    return answer


def framed(request: Request) -> RawHeaders:
    """Return a request's headers with those that a client adds, names in lower case."""
    host = urlsplit(request.url).netloc.encode("idna")
    length = str(len(request.body)).encode("ascii")
    given = tuple((name.lower(), value) for name, value in request.headers)
    return ((b"host", host), *given, (b"content-length", length))


def split_in_two(body: bytes) -> tuple[bytes, bytes]:
    """Return all of a body but its last byte, and that byte."""
    return body[:-1], body[-1:]


def failed_with(error: BaseException) -> NoAnswerError:
    """Return what a client sees of an application that raises."""
    return NoAnswerError(f"the application raised {type(error).__name__}")


def needs_network(what: str) -> UnsupportedError:
    """Return the error for what only a connection can do."""
    return UnsupportedError(f"{what}: only over a network; run `semel check` on a server")
