"""From the address of a store to the store itself (rule S1).

    store = semel.open_async_store("postgresql://app@db.internal/shop")

Nothing is connected here: an address that can not be understood and a driver
that is not installed are the only failures. Passwords in addresses never reach
an error's text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from semel.errors import StoreSchemaError, UsageError
from semel.store.protocol import AsyncStore
from semel.store.tables import Tables

Tx_co = TypeVar("Tx_co", covariant=True)

FORMS = (
    "sqlite:///path/to/file.db, postgresql://user@host:5432/database "
    "(postgresql+asyncpg:// for asyncpg) or memory://"
)
HIDDEN = "***"

_SQLITE = "sqlite:///"
_ASYNCPG = "postgresql+asyncpg://"
_POSTGRESQL = ("postgresql://", "postgres://", "postgresql+psycopg://", _ASYNCPG)
_MEMORY = "memory://"
# Whatever stands between a colon and the last @ is taken for the password, also
# where the address is too malformed for a parser.
_PASSWORD = re.compile(r"(?<=:)(?!//)\S+(?=@)|(?<=password=)[^&\s]+", re.IGNORECASE)
_DRIVER = re.compile(r"\+[a-z]+://")
# Shorter ones would be found in every other word of a message.
_SHORTEST_SECRET = 4


class OpenedStore(AsyncStore[Tx_co], Protocol[Tx_co]):
    """A store that can also look after its own tables.

    Attributes:
        dialect: `sqlite`, `postgresql` or `memory`.
    """

    @property
    def dialect(self) -> str: ...  # noqa: D102 - documented above

    async def migrate(self) -> Sequence[int]:
        """Bring the tables to the newest version; returns what was applied."""

    async def check(self) -> None:
        """Make sure that the tables are as new as this code needs.

        Raises:
            StoreSchemaError: they are missing or older.
        """


def open_async_store(
    url: str, *, tables: Tables | None = None, max_connections: int = 16
) -> OpenedStore[Any]:
    """Make the store that an address names; the first use connects it.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db`,
            `postgresql://user:password@host:5432/database?options` (as libpq
            reads it), or `memory://`, which ends with the process. The driver is
            psycopg; with `postgresql+asyncpg://` it is asyncpg.
        tables: the schema and prefix of Semel's tables.
        max_connections: connections at most, where the store pools them.

    Raises:
        UsageError: the address has none of these forms, or the driver for it is
            not installed; the text says what to do.
    """
    match dialect_of(url):
        case "sqlite":
            from semel.sqlite import AsyncStore as Sqlite  # noqa: PLC0415 - only where asked for

            return Sqlite(url.removeprefix(_SQLITE), tables=tables)
        case "postgresql":
            return _open_postgresql(url, tables, max_connections)
        case _:
            from semel.memory import AsyncStore as Memory  # noqa: PLC0415 - only where asked for

            return Memory(tables=tables)


def dialect_of(url: str) -> str:
    """Return `sqlite`, `postgresql` or `memory`.

    Raises:
        UsageError: the address has none of the accepted forms.
    """
    if url == _MEMORY:
        return "memory"
    if url.startswith(_SQLITE):
        if "?" in url or "#" in url or url == _SQLITE or url.endswith("/"):
            raise UsageError(f"{redacted(url)!r} names no file of SQLite: use {FORMS}")
        return "sqlite"
    if url.startswith(_POSTGRESQL):
        return "postgresql"
    raise UsageError(f"{redacted(url)!r} is not the address of a store: use {FORMS}")


def refuse_missing_file(url: str) -> None:
    """Refuse an address of SQLite whose file is not there: opening it would make one.

    Raises:
        StoreSchemaError: there is no such file.
    """
    if dialect_of(url) != "sqlite":
        return
    path = Path(url.removeprefix(_SQLITE))
    if not path.exists():
        raise StoreSchemaError(f"{path} does not exist: `semel migrate` makes it")


def redacted(url: str) -> str:
    """Return the address without its password, for messages and pages."""
    return _PASSWORD.sub(HIDDEN, url)


def scrubbed(text: str, url: str) -> str:
    """Return a text, such as a driver's message, without the password of an address.

    Args:
        text: what may quote the address or its password.
        url: the address.
    """
    clean = text.replace(url, redacted(url))
    for secret in _secrets(url):
        clean = clean.replace(secret, HIDDEN)
    return _PASSWORD.sub(HIDDEN, clean)


def _secrets(url: str) -> set[str]:
    found = {match[0] for match in _PASSWORD.finditer(url)}
    with suppress(ValueError):  # an address that can not be parsed: the pattern has to do
        found.add(urlsplit(url).password or "")
    found |= {unquote(secret) for secret in found}
    return {secret for secret in found if len(secret) >= _SHORTEST_SECRET}


def uses_asyncpg(url: str) -> bool:
    """Say whether an address asks for asyncpg."""
    return url.startswith(_ASYNCPG)


def _open_postgresql(url: str, tables: Tables | None, max_connections: int) -> OpenedStore[Any]:
    plain = _DRIVER.sub("://", url, count=1)
    if uses_asyncpg(url):
        try:
            from semel.asyncpg import AsyncStore as Asyncpg  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise _not_installed(error, "semel[asyncpg]") from error
        return Asyncpg.connect(plain, tables=tables, max_size=max_connections)
    try:
        from semel.psycopg import AsyncStore as Postgresql  # noqa: PLC0415 - an optional extra
    except ImportError as error:  # psycopg itself, its pool, or the library that it needs
        raise _not_installed(error, "semel[postgres]") from error
    return Postgresql.connect(plain, tables=tables, max_size=max_connections)


def _not_installed(error: ImportError, extra: str) -> Exception:
    if (error.name or "").startswith("semel"):
        return error
    return UsageError(f"the driver for PostgreSQL is not installed: pip install '{extra}'")
