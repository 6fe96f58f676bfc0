"""What the service is told on its command line, as one value.

Worker processes are started anew and get it through one environment variable.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from semel.core.model import Mode
from semel.core.options import Options
from semel.errors import UsageError
from semel.opening import uses_asyncpg
from semel.store.tables import Tables

VARIABLE = "SEMEL_SERVE_SETTINGS"
# Known to everybody: for a machine of one's own.
DEMO_CLIENTS: Mapping[str, str] = {"shop-1": "demo-1", "shop-2": "demo-2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the service is told.

    Attributes:
        store: the address of the store.
        schema: the database schema of all tables, or "".
        prefix: what the names of Semel's own tables begin with.
        mode: how claim, effect and answer share transactions; `None` takes the
            store's default.
        lease: seconds until a joined claim whose owner stopped may be taken over.
        idle_timeout: seconds after which the database ends the transaction of an
            owner that stopped talking.
        clients: the token of each client, by its name.
        ignore: JSON pointers of body fields that do not make a different request.
        secrets: secrets for the fingerprint, the current one first.
        handler_log: a file that gets one line whenever a handler starts.
        holds: the folder in which held requests wait to be released; `None`
            means that the service does not fail on purpose.
    """

    store: str
    schema: str = ""
    prefix: str = Tables().prefix
    mode: Mode | None = None
    lease: float = Options().lease
    idle_timeout: float = Options().idle_timeout
    clients: Mapping[str, str] = field(default_factory=lambda: dict(DEMO_CLIENTS))
    ignore: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    handler_log: str | None = None
    holds: str | None = None

    def __post_init__(self) -> None:
        """Refuse what only other commands can work with (`UsageError`)."""
        if uses_asyncpg(self.store):
            raise UsageError("the reference service works with psycopg: use postgresql://")

    @property
    def tables(self) -> Tables:
        """The names of Semel's tables; raises `UsageError`."""
        return Tables(self.schema, self.prefix)

    @property
    def options(self) -> Options:
        """How payments are guarded; raises `UsageError`."""
        return Options(
            mode=self.mode,
            lease=self.lease,
            idle_timeout=self.idle_timeout,
            ignore=self.ignore,
            secrets=tuple(secret.encode() for secret in self.secrets),
        )

    def to_json(self) -> str:
        """Return a text that `from_json` makes the same settings of."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` has written."""
        fields: dict[str, Any] = json.loads(text)
        fields["mode"] = Mode(fields["mode"]) if fields["mode"] else None
        fields["ignore"] = tuple(fields["ignore"])
        fields["secrets"] = tuple(fields["secrets"])
        return cls(**fields)


def read_clients(pairs: list[str]) -> dict[str, str]:
    """Read `NAME=TOKEN` pairs; none at all means the demo's clients.

    Raises:
        UsageError: a pair is malformed, or a name or token comes twice. The text
            never repeats a token.
    """
    clients: dict[str, str] = {}
    for pair in pairs:
        name, equals, token = pair.partition("=")
        if not (name and equals and token) or not token.isascii() or " " in token:
            raise UsageError(
                "a client is malformed: use --client NAME=TOKEN, the token without spaces "
                "and in ASCII"
            )
        if name in clients or token in clients.values():
            raise UsageError(f"client {name!r}: each client needs a name and a token of its own")
        clients[name] = token
    return clients or dict(DEMO_CLIENTS)
