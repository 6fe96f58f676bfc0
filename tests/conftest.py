"""Fixtures that every test may use.

Databases: `pg_database` is a fresh one for each test, `postgres_url` one for
the session (for each xdist worker), `own_postgres` a whole server for a test
that restarts or reconfigures it. Where no server can be had, a test is skipped
and the summary says so; with CI=true it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import settings

from servers import NO_SERVER, OwnPostgres, find_server, fresh_database, in_ci, needed

# The machine may be busy: how long one example takes proves nothing. In CI the
# examples are the same every time, so that a failure belongs to the change.
settings.register_profile("semel", deadline=None)
settings.register_profile("semel-ci", parent=settings.get_profile("semel"), derandomize=True)
settings.load_profile("semel-ci" if in_ci() else "semel")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Address of a PostgreSQL on which databases may be created; it may be somebody's own."""
    with ExitStack() as stack:
        with needed("PostgreSQL"):
            url = stack.enter_context(find_server())
        yield url


@pytest.fixture(scope="session")
def postgres_url(postgres_server: str) -> Iterator[str]:
    """Address of a database that the tests of this session share."""
    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture
def pg_database(postgres_server: str) -> Iterator[str]:
    """Address of an empty database of this test's own."""
    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture
def own_postgres() -> Iterator[OwnPostgres]:
    """Give this test a PostgreSQL server of its own to restart, stop and reconfigure."""
    with ExitStack() as stack:
        with needed("PostgreSQL"):
            server = stack.enter_context(OwnPostgres())
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the servers that were missing, and what was not tested for it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [str(report.longrepr) for report in skipped if NO_SERVER in str(report.longrepr)]
    if reasons:
        terminalreporter.section("not tested: a server is missing")
        for name in ("PostgreSQL",):
            count = sum(f"{NO_SERVER} {name}" in reason for reason in reasons)
            terminalreporter.write_line(f"{name}: {count} tests skipped")
