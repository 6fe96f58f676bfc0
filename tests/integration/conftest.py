"""A running reference service for the tests of one module, on each kind of store."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import fresh_database
from serving import Served, serving


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Address of a store that the tests of one module share."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('store')}/shop.db"
    elif request.param == "memory":
        yield "memory://"
    else:
        with fresh_database(request.getfixturevalue("postgres_server")) as url:
            yield url


@pytest.fixture(scope="module")
def service(store: str) -> Iterator[Served]:
    """Run the reference service for the tests of one module: each uses keys of its own."""
    with serving(store, "--lease", "2") as served:
        yield served
        assert "Traceback" not in served.errors


@pytest.fixture
def key() -> str:
    """Return a new idempotency key."""
    return str(uuid.uuid4())


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Address of a file of SQLite that is not there yet."""
    return f"sqlite:///{tmp_path}/shop.db"
