"""From an address to a store: without I/O, and without a password in any message."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.errors import StoreSchemaError, UsageError
from semel.opening import (
    dialect_of,
    open_async_store,
    redacted,
    refuse_missing_file,
    scrubbed,
)
from semel.store.tables import Tables


@pytest.mark.rule("S1")
@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("sqlite:///shop.db", "sqlite"),
        ("sqlite:////var/lib/shop.db", "sqlite"),
        ("postgresql://app@nowhere.invalid/shop", "postgresql"),
        ("postgres://app@nowhere.invalid/shop", "postgresql"),
        ("postgresql+psycopg://app@nowhere.invalid/shop", "postgresql"),
        ("postgresql+asyncpg://app@nowhere.invalid/shop", "postgresql"),
        ("memory://", "memory"),
    ],
)
def test_an_address_makes_a_store_and_connects_to_nothing(
    url: str, dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_async_store(url, tables=Tables(prefix="own_"))

    assert (dialect_of(url), store.dialect) == (dialect, dialect)
    assert store.tables.prefix == "own_"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rule("S1")
@pytest.mark.parametrize(
    "url", ["", "shop.db", "redis://localhost", "SQLITE:///a", "sqlite:///a#b"]
)
def test_any_other_address_names_the_forms(url: str) -> None:
    with pytest.raises(UsageError, match=r"sqlite:///path.*postgresql://user@host.*memory://"):
        open_async_store(url)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with pytest.raises(StoreSchemaError, match="semel migrate"):
        refuse_missing_file(f"sqlite:///{file}")
    file.touch()
    refuse_missing_file(f"sqlite:///{file}")
    refuse_missing_file("memory://")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://app:word@db:5432/shop", "postgresql://app:***@db:5432/shop"),
        ("postgresql://app:w@r/d@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://app@db/shop?password=word&x=1", "postgresql://app@db/shop?password=***&x=1"),
        ("postgresql://app@db:5432/shop", "postgresql://app@db:5432/shop"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redacted(url) == shown


def test_a_message_of_a_driver_loses_the_password_in_every_spelling() -> None:
    url = "postgresql://app:w%C3%B6rd-1@db/shop"
    message = f'no such thing in "{url}": password "wörd-1" or w%C3%B6rd-1'

    assert scrubbed(message, url) == (
        'no such thing in "postgresql://app:***@db/shop": password "***" or ***'
    )
