"""The servers that the other tests stand on do what they say."""

from __future__ import annotations

import psycopg
import pytest

import servers
from servers import OwnPostgres


def test_own_server_logs_what_an_application_sent(own_postgres: OwnPostgres) -> None:
    own_postgres.set(log_statement="all")
    with psycopg.connect(own_postgres.url, application_name="counted") as connection:
        connection.execute("SELECT 40 +\n  2")
        connection.execute("SELECT %s::int", [7])
    with psycopg.connect(own_postgres.url, application_name="other") as connection:
        connection.execute("SELECT 'elsewhere'")

    assert own_postgres.statements("counted") == [
        "BEGIN",
        "SELECT 40 + 2",
        "SELECT $1::int",
        "COMMIT",
    ]
    assert "elsewhere" in own_postgres.log_text()


def test_an_immediate_restart_keeps_what_was_committed_and_nothing_else(
    own_postgres: OwnPostgres,
) -> None:
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE effect (n int)")
        connection.execute("INSERT INTO effect VALUES (1)")
    pending = psycopg.connect(own_postgres.url)
    pending.execute("INSERT INTO effect VALUES (2)")

    own_postgres.restart_immediate()

    with pytest.raises(psycopg.OperationalError):
        pending.execute("SELECT 1")
    pending.close()
    with psycopg.connect(own_postgres.url) as connection:
        assert connection.execute("SELECT n FROM effect").fetchall() == [(1,)]


def test_a_stopped_server_refuses_until_it_is_started(own_postgres: OwnPostgres) -> None:
    own_postgres.stop("fast")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(own_postgres.url)
    own_postgres.start()
    assert servers.answers(own_postgres.url)


def test_an_own_server_leaves_nothing_behind(own_postgres: OwnPostgres) -> None:
    folder = own_postgres.folder
    own_postgres.close()
    assert not folder.exists()
    assert not servers.answers(own_postgres.url)


def test_the_wheel_serves_when_no_other_server_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(servers.VARIABLE, "none")
    with servers.needed("PostgreSQL"), servers.find_server() as url:
        assert url != servers.STANDARD
        with psycopg.connect(url) as connection:
            assert connection.info.server_version >= 180000
    assert not servers.answers(url)


def test_an_address_that_was_asked_for_must_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        servers.VARIABLE, f"postgresql://postgres@127.0.0.1:{servers.free_port()}/postgres"
    )
    with pytest.raises(psycopg.OperationalError), servers.find_server():
        pass


def test_each_test_has_an_empty_database_of_its_own(pg_database: str, postgres_url: str) -> None:
    assert pg_database != postgres_url
    with psycopg.connect(pg_database) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert tables.fetchone() == (0,)


def test_a_database_is_dropped_although_somebody_is_connected(postgres_server: str) -> None:
    with servers.fresh_database(postgres_server) as url:
        left_open = psycopg.connect(url)
    with pytest.raises(psycopg.OperationalError):
        left_open.execute("SELECT 1")
    left_open.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_a_missing_server_fails_in_ci_and_is_skipped_elsewhere(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="PostgreSQL"), servers.needed("PostgreSQL"):
        raise servers.ServerMissingError
