"""The command line: what it prints, how it fails, and with which exit code."""

from __future__ import annotations

import json
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest

from serving import semel, serving

# Nobody listens on port 1 of the loopback address.
UNREACHABLE = "postgresql://app:s3cret-word@127.0.0.1:1/shop"


def refused(*arguments: str, code: int = 2, **environment: str) -> str:
    """Run a command that must fail in one line; returns that line."""
    done = semel(*arguments, **environment)
    assert (done.returncode, done.stdout) == (code, ""), done
    assert re.fullmatch(r"semel: error: [^\n]+\n", done.stderr), done.stderr
    return done.stderr


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.mark.rule("S1")
@pytest.mark.parametrize("command", [["serve"], ["migrate"], ["keys", "list"], ["demo", "--once"]])
@pytest.mark.parametrize(
    "url",
    [
        "shop.db",
        "sqlite://shop.db",
        "sqlite:///",
        "sqlite:///shop.db?mode=ro",
        "mysql://app:s3cret-word@localhost/shop",
        "postgresql+asyncpg://app:s3cret-word@localhost/shop",
        "postgresql:/app:s3cret-word@localhost",
        "memory://shop",
    ],
)
def test_a_store_that_nobody_knows_names_the_forms(command: list[str], url: str) -> None:
    said = refused(*command, "--store", url)

    for form in ("sqlite:///path", "postgresql://user@host", "memory://"):
        assert form in said
    assert "s3cret-word" not in said


@pytest.mark.parametrize("command", [["serve"], ["migrate"], ["keys", "list"], ["demo", "--once"]])
def test_a_database_that_does_not_answer_is_exit_code_3(command: list[str]) -> None:
    said = refused(*command, "--store", UNREACHABLE, code=3)

    assert "127.0.0.1" in said
    assert "refused" in said
    assert "s3cret-word" not in said


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:s3cret-word@[::1/shop",
        "postgresql://app:s3cret-word@127.0.0.1:port/shop",
        "postgresql://app:s3cret/word@127.0.0.1:1/shop",
        "postgresql://127.0.0.1:1/shop?user=app&password=s3cret-word",
        "postgresql://127.0.0.1:1/shop?nonsense=1&password=s3cret-word",
    ],
)
def test_no_part_of_a_password_is_ever_printed(url: str) -> None:
    done = semel("keys", "list", "--store", url)

    assert done.returncode in {2, 3}
    assert "s3cret" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_store_may_come_from_the_environment(file: str) -> None:
    done = semel("migrate", SEMEL_STORE=file)

    assert (done.returncode, done.stdout) == (0, "applied: 1\n")


@pytest.mark.rule("S3")
def test_without_migrate_missing_tables_are_an_error(file: str, pg_database: str) -> None:
    path = Path(file.removeprefix("sqlite:///"))
    assert "semel migrate" in refused("serve", "--store", file)
    assert "semel migrate" in refused("keys", "list", "--store", file)
    assert not path.exists()

    path.touch()
    assert "semel migrate" in refused("serve", "--store", file)
    assert "semel migrate" in refused("serve", "--store", pg_database)
    assert "semel migrate" in refused("keys", "list", "--store", pg_database)


@pytest.mark.rule("S3")
def test_an_old_schema_is_an_error(file: str, pg_database: str) -> None:
    for url in (file, pg_database):
        assert semel("migrate", "--store", url).returncode == 0
    with sqlite3.connect(file.removeprefix("sqlite:///")) as connection:
        connection.execute("DELETE FROM semel_version")
    connection.close()
    with psycopg.connect(pg_database) as postgres:
        postgres.execute("DELETE FROM semel_version")

    for url in (file, pg_database):
        said = refused("serve", "--store", url)
        assert "version 0, 1 is needed" in said
        assert "semel migrate" in said


def test_the_table_of_the_service_is_made_by_the_service(file: str) -> None:
    semel("migrate", "--store", file)

    assert "--migrate" in refused("serve", "--store", file)


@pytest.mark.rule("S3")
@pytest.mark.parametrize("option", ["--prefix", "--schema"])
@pytest.mark.parametrize("name", ['semel"; DROP TABLE payment; --', "1st", "a b", "x" * 42])
@pytest.mark.parametrize("command", [["serve"], ["migrate", "--sql"], ["keys", "list"]])
def test_an_illegal_name_of_a_table_is_an_error(command: list[str], option: str, name: str) -> None:
    said = refused(*command, "--store", "postgresql://127.0.0.1:1/shop", option, name)

    assert "letters, digits and underscores" in said


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--client", "demo-9"], "NAME=TOKEN"),
        (["--client", "=x"], "NAME=TOKEN"),
        (["--client", "a=1", "--client", "a=2"], "of its own"),
        (["--client", "a=1", "--client", "b=1"], "of its own"),
        (["--ignore", "no-pointer"], "pointer"),
        (["--lease", "0"], "lease"),
        (["--lease", "nan"], "lease"),
        (["--idle-timeout", "-1"], "idle_timeout"),
        (["--mode", "leased"], "mode"),
        (["--mode", "nonsense"], "--mode"),
        (["--workers", "0"], "--workers"),
        (["--port", "65536"], "--port"),
        (["--host", "256.0.0.1"], "--host"),
        (["--host", "0.0.0.0", "--test-faults"], "--host 127.0.0.1"),
        (["--handler-log", "/nonexistent/folder/log"], "handler log"),
        (["--nonsense"], "--help"),
    ],
)
def test_an_option_that_can_not_work_says_what_to_do(
    file: str, options: list[str], hint: str
) -> None:
    said = refused("serve", "--migrate", "--port", "0", "--store", file, *options)

    assert hint in said
    assert "demo-9" not in said


def test_memory_is_refused_where_it_can_not_work() -> None:
    assert "--workers 1" in refused("serve", "--store", "memory://", "--workers", "2")
    assert "memory://" in refused("migrate", "--store", "memory://")
    assert "memory://" in refused("demo", "--once", "--store", "memory://")


def test_a_missing_driver_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "psycopg").mkdir()
    text = "raise ModuleNotFoundError('No module named psycopg', name='psycopg')\n"
    (tmp_path / "psycopg" / "__init__.py").write_text(text)
    said = refused("migrate", "--store", "postgresql://127.0.0.1/x", PYTHONPATH=str(tmp_path))

    assert "pip install 'semel[postgres]'" in said


def test_a_missing_command_line_says_what_to_install(tmp_path: Path) -> None:
    text = "raise ModuleNotFoundError('No module named typer', name='typer')\n"
    (tmp_path / "typer.py").write_text(text)
    said = refused("--version", PYTHONPATH=str(tmp_path))

    assert "pip install 'semel[cli]'" in said


def test_a_folder_that_is_missing_is_exit_code_3(tmp_path: Path) -> None:
    said = refused("migrate", "--store", f"sqlite:///{tmp_path}/no/shop.db", code=3)

    assert "create its folder" in said


def test_commands_and_their_help() -> None:
    version = semel("--version")
    assert (version.returncode, version.stdout.split()[0]) == (0, "semel")

    for command in ([], ["serve"], ["migrate"], ["keys", "list"], ["demo"]):
        done = semel(*command, "--help", COLUMNS="200")
        assert done.returncode == 0
        assert "Exit codes: 0 all went well" in done.stdout

    everything = semel(COLUMNS="200").stdout
    assert all(command in everything for command in ("serve", "migrate", "keys", "demo"))


@pytest.mark.rule("S3")
def test_migrate_is_safe_to_repeat_and_at_once(pg_database: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: semel("migrate", "--store", pg_database), range(3)))

    assert {one.returncode for one in done} == {0}, [one.stderr for one in done]
    said = sorted(one.stdout for one in done)
    assert said == ["applied: 1\n", *["nothing to do: the schema has version 1\n"] * 2]


@pytest.mark.rule("S3")
@pytest.mark.parametrize("names", [(), ("--schema", "Side", "--prefix", "x_")])
def test_the_printed_schema_is_the_one_that_migrate_makes(
    pg_database: str, names: tuple[str, ...]
) -> None:
    printed = semel("migrate", "--sql", "--store", UNREACHABLE, *names)
    with psycopg.connect(pg_database, autocommit=True) as connection:
        connection.execute(printed.stdout)  # type: ignore[call-overload]

    done = semel("migrate", "--store", pg_database, *names)
    assert done.stdout == "nothing to do: the schema has version 1\n"
    assert "no claims" in semel("keys", "list", "--store", pg_database, *names).stdout


def test_claims_are_listed_by_their_digests(file: str, tmp_path: Path) -> None:
    log = tmp_path / "handlers.log"
    with serving(file, "--handler-log", str(log)) as service:
        service.pay("secret-key-1")
        service.pay("secret-key-2", fault="status=402")
        service.pay("secret-key-3", fault="status=500")
    listed = semel("keys", "list", "--store", file, "--json")
    table = semel("keys", "list", "--store", file, "--limit", "1")

    claims = {claim["key"]: claim for claim in json.loads(listed.stdout)}
    digests = [sha256(f"secret-key-{n}".encode()).hexdigest()[:12] for n in (1, 2, 3)]
    assert log.read_text("ascii").split() == digests
    first, second, third = (claims[digest] for digest in digests)
    assert (first["status"], first["answer_status"], first["mode"]) == ("completed", 201, "joined")
    assert (second["status"], second["answer_status"]) == ("completed", 402)
    assert (third["status"], third["answer_status"]) == ("released", None)
    assert first["created_at"] < first["expires_at"]
    assert first["lease_expires_at"] is None
    assert digests[2] in table.stdout
    assert digests[0] not in table.stdout
    assert "secret-key" not in listed.stdout + table.stdout


@pytest.mark.rule("S3")
def test_the_service_lives_in_a_schema_of_its_own(pg_database: str) -> None:
    names = ("--schema", "Shop", "--prefix", "own_")
    with serving(pg_database, *names) as service:
        assert service.pay("key-1").status_code == 201
        assert service.count() == 1
    with psycopg.connect(pg_database) as connection:
        made = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 2"
        ).fetchall()

    assert made == [("Shop", "own_claim"), ("Shop", "own_version"), ("Shop", "payment")]
