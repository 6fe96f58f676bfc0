"""Fresh operations: a body and a key that nobody has used before."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from semel.check.message import Request
from semel.check.settings import Settings


class Scope(StrEnum):
    """Who sends a request."""

    A = "a"
    B = "b"


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing to be done once.

    Attributes:
        settings: where it is sent and with which headers.
        key: its idempotency key, unquoted.
        body: its body, placeholders filled in.
    """

    settings: Settings
    key: str
    body: bytes

    def with_body(self, body: bytes) -> Operation:
        """Return an operation with the same key and another body."""
        return replace(self, body=body)

    def with_key(self, key: str) -> Operation:
        """Return an operation with another key and the same body."""
        return replace(self, key=key)

    @property
    def key_line(self) -> bytes:
        """The value of the key's header, quoted or bare as the settings say."""
        return f'"{self.key}"'.encode() if self.settings.quoted else self.key.encode()

    def request(
        self,
        *,
        scope: Scope = Scope.A,
        url: str | None = None,
        key_lines: tuple[bytes, ...] | None = None,
        extra: tuple[bytes, bytes] | None = None,
    ) -> Request:
        """Return the request that asks for it.

        Args:
            scope: whose credentials it carries.
            url: another address than the settings' own.
            key_lines: the key's header lines as they are to be sent, instead of `key_line`;
                `()` for none at all.
            extra: one more header, such as `Settings.fail_with`.
        """
        settings = self.settings
        credentials = settings.scope_a if scope is Scope.A else settings.scope_b or ()
        lines = (self.key_line,) if key_lines is None else key_lines
        name = settings.key_header.encode("ascii")
        return Request(
            method=settings.method,
            url=settings.url if url is None else url,
            headers=(
                *settings.headers,
                *credentials,
                (b"Content-Type", settings.content_type.encode("latin-1")),
                *((name, line) for line in lines),
                *((extra,) if extra else ()),
            ),
            body=self.body,
        )


@dataclass
class Operations:
    """Makes operations, none like another where the template has placeholders."""

    settings: Settings
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def fresh(self) -> Operation:
        """Return an operation that nobody has asked for."""
        body = self.settings.body.replace(b"{{uuid}}", str(uuid.uuid4()).encode())
        body = body.replace(b"{{n}}", str(next(self._numbers)).encode())
        return Operation(self.settings, str(uuid.uuid4()), body)
