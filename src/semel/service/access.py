"""Who calls: bearer tokens (RFC 6750), compared in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence

from semel.errors import AccessRefusedError

CHALLENGE = (("WWW-Authenticate", 'Bearer realm="payments"'),)


class Clients:
    """The clients that may use the service."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Know each client's token, by the client's name."""
        self._tokens = [(name, token.encode()) for name, token in tokens.items()]

    def of(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Return the name of the client that these raw request headers prove.

        Raises:
            AccessRefusedError: 401; there is no token, more than one, or nobody
                has it.
        """
        found = [value for name, value in headers if name.lower() == b"authorization"]
        name = self._owner(found)
        if name is None:
            raise AccessRefusedError(
                401, "send `Authorization: Bearer TOKEN` with a client's token", CHALLENGE
            )
        return name

    def _owner(self, values: Sequence[bytes]) -> str | None:
        if len(values) != 1:
            return None
        scheme, _, token = values[0].strip().partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        token = token.strip()
        # All are compared, so that the time tells nothing about which came near.
        owners = [name for name, known in self._tokens if hmac.compare_digest(known, token)]
        return owners[0] if owners else None
