"""What goes over the wire: a request as it is to be sent, an answer as it came."""

from __future__ import annotations

from dataclasses import dataclass, replace

RawHeaders = tuple[tuple[bytes, bytes], ...]


class NoAnswerError(Exception):
    """No whole answer came: refused, reset, cut half-way, timed out, or no HTTP.

    The text says which, in words for a report; it holds no key and no credential.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, byte for byte.

    Attributes:
        method: `POST`, …
        url: absolute, with its query.
        headers: as they are sent, in order, also where they break the rules of HTTP on
            purpose; `Host` and `Content-Length` are added by whoever sends it.
        body: the content.
    """

    method: str
    url: str
    headers: RawHeaders
    body: bytes = b""

    def with_headers(self, *pairs: tuple[bytes, bytes]) -> Request:
        """Return this request with lines added at the end."""
        return replace(self, headers=(*self.headers, *pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One whole answer.

    Attributes:
        status: the status code of the final (not 1xx) answer.
        headers: raw pairs in the order in which they came.
        body: the content, with the transfer coding taken off and the content coding left on.
        version: `1.1` or `2`.
        seconds: from the last byte of the request to the last byte of the answer.
    """

    status: int
    headers: RawHeaders
    body: bytes
    version: str = "1.1"
    seconds: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004 - RFC 9110 section 15.3

    @property
    def refused(self) -> bool:
        """Whether the status is 4xx."""
        return 400 <= self.status < 500  # noqa: PLR2004 - RFC 9110 section 15.5

    @property
    def failed(self) -> bool:
        """Whether the status is 5xx."""
        return self.status >= 500  # noqa: PLR2004 - RFC 9110 section 15.6

    def all(self, name: str) -> list[str]:
        """Return the values of a header, a line each, in order."""
        wanted = name.lower().encode("ascii")
        return [value.decode("latin-1") for key, value in self.headers if key.lower() == wanted]

    def get(self, name: str) -> str | None:
        """Return the first value of a header, or None."""
        values = self.all(name)
        return values[0] if values else None
