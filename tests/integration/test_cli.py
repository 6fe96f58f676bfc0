"""The command line: what it prints, how it fails, and with which exit code."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from semel.cli.app import run
from serving import digest, semel, serving

# Nobody listens on port 1 of the loopback address.
UNREACHABLE = "postgresql://app:s3cret-word@127.0.0.1:1/shop"
EVERYWHERE = ".".join("0000")
COMMANDS = [("serve",), ("migrate",), ("keys", "list"), ("demo", "--once")]
# Those that only look after tables, whichever driver the address names.
WITH_EVERY_DRIVER = [("migrate",), ("keys", "list")]


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]
Refused = Callable[..., str]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process: its code, without the time that a start takes."""

    def run_command(*arguments: str) -> Done:
        code = run(arguments)
        return Done(code, *capsys.readouterr())

    return run_command


@pytest.fixture
def refused(command: Command) -> Refused:
    """Run a command that must fail in one line; gives that line."""

    def run_refused(*arguments: str, code: int = 2) -> str:
        done = command(*arguments)
        assert (done.code, done.out) == (code, ""), done
        assert is_one_line(done.err), done.err
        return done.err

    return run_refused


def with_asyncpg(url: str) -> str:
    """Return an address that asks for the other driver."""
    return url.replace("postgresql://", "postgresql+asyncpg://", 1)


def is_one_line(text: str) -> bool:
    return bool(re.fullmatch(r"semel: error: [^\n]+\n", text))


@pytest.mark.rule("S1", "T2")
@pytest.mark.parametrize("asked", COMMANDS)
@pytest.mark.parametrize(
    "url",
    [
        "shop.db",
        "sqlite://shop.db",
        "sqlite:///",
        "sqlite:///shop.db?mode=ro",
        "mysql://app:s3cret-word@localhost/shop",
        "mysql+aiomysql://app:s3cret-word@localhost/shop",
        "postgresql:/app:s3cret-word@localhost",
        "memory://shop",
    ],
)
def test_a_store_that_nobody_knows_names_the_forms(
    refused: Refused, asked: tuple[str, ...], url: str
) -> None:
    said = refused(*asked, "--store", url)

    for form in ("sqlite:///path", "postgresql://user@host", "memory://"):
        assert form in said
    assert "s3cret-word" not in said


@pytest.mark.parametrize(
    ("asked", "url"),
    [
        *((asked, UNREACHABLE) for asked in COMMANDS),
        *((asked, with_asyncpg(UNREACHABLE)) for asked in WITH_EVERY_DRIVER),
    ],
)
def test_a_database_that_does_not_answer_is_exit_code_3(
    refused: Refused, asked: tuple[str, ...], url: str
) -> None:
    said = refused(*asked, "--store", url, code=3)

    assert "127.0.0.1" in said
    assert "refused" in said or "Connect call failed" in said
    assert "s3cret-word" not in said


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:s3cret-word@[::1/shop",
        "postgresql://app:s3cret-word@127.0.0.1:port/shop",
        "postgresql://app:s3cret/word@127.0.0.1:1/shop",
        "postgresql://127.0.0.1:1/shop?user=app&password=s3cret-word",
        "postgresql://127.0.0.1:1/shop?nonsense=1&password=s3cret-word",
        "postgresql+asyncpg://app:s3cret-word@127.0.0.1:1/shop",
        "postgresql+asyncpg://app:s3cret-word@127.0.0.1:port/shop",
        "postgresql+asyncpg://app:s3cret-word@[::1/shop",
        "postgresql+asyncpg://127.0.0.1:1/shop?port=nonsense&password=s3cret-word",
    ],
)
def test_no_part_of_a_password_is_ever_printed(command: Command, url: str) -> None:
    done = command("keys", "list", "--store", url)

    assert done.code in {2, 3}
    assert is_one_line(done.err)
    assert "s3cret" not in done.out + done.err


def test_the_store_may_come_from_the_environment(
    command: Command, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMEL_STORE", file)

    assert command("migrate") == Done(0, "applied: 1\n", "")


@pytest.mark.rule("S3")
def test_without_migrate_missing_tables_are_an_error(
    refused: Refused, file: str, pg_database: str
) -> None:
    path = Path(file.removeprefix("sqlite:///"))
    assert "semel migrate" in refused("serve", "--store", file)
    assert "semel migrate" in refused("keys", "list", "--store", file)
    assert not path.exists()

    path.touch()
    assert "semel migrate" in refused("serve", "--store", file)
    assert "semel migrate" in refused("serve", "--store", pg_database)
    assert "semel migrate" in refused("keys", "list", "--store", pg_database)


@pytest.mark.rule("S3")
def test_an_old_schema_is_an_error(
    command: Command, refused: Refused, file: str, pg_database: str
) -> None:
    for url in (file, pg_database):
        assert command("migrate", "--store", url).code == 0
    with sqlite3.connect(file.removeprefix("sqlite:///")) as connection:
        connection.execute("DELETE FROM semel_version")
    connection.close()
    with psycopg.connect(pg_database) as postgres:
        postgres.execute("DELETE FROM semel_version")

    for url in (file, pg_database):
        said = refused("serve", "--store", url)
        assert "version 0, 1 is needed" in said
        assert "semel migrate" in said


def test_the_table_of_the_service_is_made_by_the_service(
    command: Command, refused: Refused, file: str
) -> None:
    command("migrate", "--store", file)

    assert "--migrate" in refused("serve", "--store", file)


@pytest.mark.rule("S3")
@pytest.mark.parametrize("option", ["--prefix", "--schema"])
@pytest.mark.parametrize("name", ['semel"; DROP TABLE payment; --', "1st", "a b", "x" * 42])
@pytest.mark.parametrize("asked", [("serve",), ("migrate", "--sql"), ("keys", "list")])
def test_an_illegal_name_of_a_table_is_an_error(
    refused: Refused, asked: tuple[str, ...], option: str, name: str
) -> None:
    said = refused(*asked, "--store", "postgresql://127.0.0.1:1/shop", option, name)

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
        (["--host", EVERYWHERE, "--test-faults"], "--host 127.0.0.1"),
        (["--handler-log", "/nonexistent/folder/log"], "handler log"),
        (["--nonsense"], "--help"),
    ],
)
def test_an_option_that_can_not_work_says_what_to_do(
    refused: Refused, file: str, options: list[str], hint: str
) -> None:
    said = refused("serve", "--migrate", "--port", "0", "--store", file, *options)

    assert hint in said
    assert "demo-9" not in said


def test_memory_is_refused_where_it_can_not_work(refused: Refused) -> None:
    assert "--workers 1" in refused("serve", "--store", "memory://", "--workers", "2")
    assert "memory://" in refused("migrate", "--store", "memory://")
    assert "memory://" in refused("demo", "--once", "--store", "memory://")


@pytest.mark.parametrize(
    ("driver", "extra", "url"),
    [
        ("psycopg", "postgres", "postgresql://127.0.0.1/x"),
        ("asyncpg", "asyncpg", "postgresql+asyncpg://127.0.0.1/x"),
    ],
)
def test_a_missing_driver_says_what_to_install(
    tmp_path: Path, driver: str, extra: str, url: str
) -> None:
    (tmp_path / driver).mkdir()
    text = f"raise ModuleNotFoundError('No module named {driver}', name='{driver}')\n"
    (tmp_path / driver / "__init__.py").write_text(text)
    done = semel("migrate", "--store", url, PYTHONPATH=str(tmp_path))

    assert (done.returncode, is_one_line(done.stderr)) == (2, True)
    assert f"pip install 'semel[{extra}]'" in done.stderr


@pytest.mark.parametrize("asked", [("serve", "--port", "0"), ("demo", "--once")])
def test_the_reference_service_names_the_driver_that_it_needs(
    refused: Refused, asked: tuple[str, ...]
) -> None:
    assert "use postgresql://" in refused(*asked, "--store", with_asyncpg(UNREACHABLE))


def test_a_missing_command_line_says_what_to_install(tmp_path: Path) -> None:
    text = "raise ModuleNotFoundError('No module named typer', name='typer')\n"
    (tmp_path / "typer.py").write_text(text)
    done = semel("--version", PYTHONPATH=str(tmp_path))

    assert (done.returncode, is_one_line(done.stderr)) == (2, True)
    assert "pip install 'semel[cli]'" in done.stderr


def test_a_folder_that_is_missing_is_exit_code_3(refused: Refused, tmp_path: Path) -> None:
    said = refused("migrate", "--store", f"sqlite:///{tmp_path}/no/shop.db", code=3)

    assert "create its folder" in said


def test_commands_and_their_help(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for asked in ((), *COMMANDS):
        done = command(*asked, "--help")
        assert done.code == 0
        assert "Exit codes: 0 all went well" in done.out

    everything = command().out
    assert all(name in everything for name in ("serve", "migrate", "keys", "demo"))


def test_as_a_process_it_says_its_version_and_fails_in_one_line() -> None:
    version, nonsense = semel("--version"), semel("nonsense")

    assert (version.returncode, version.stdout.split()[0]) == (0, "semel")
    assert (nonsense.returncode, nonsense.stdout) == (2, "")
    assert is_one_line(nonsense.stderr)


@pytest.mark.rule("S3")
def test_both_drivers_see_the_same_tables(command: Command, pg_database: str) -> None:
    url = with_asyncpg(pg_database)
    assert command("migrate", "--store", url) == Done(0, "applied: 1\n", "")
    assert "no claims" in command("keys", "list", "--store", url).out
    assert command("migrate", "--store", pg_database).out.startswith("nothing to do")


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
    command: Command, pg_database: str, names: tuple[str, ...]
) -> None:
    printed = command("migrate", "--sql", "--store", UNREACHABLE, *names)
    with psycopg.connect(pg_database, autocommit=True) as connection:
        connection.execute(printed.out.encode())

    done = command("migrate", "--store", pg_database, *names)
    assert done == Done(0, "nothing to do: the schema has version 1\n", "")
    assert "no claims" in command("keys", "list", "--store", pg_database, *names).out


def test_claims_are_listed_by_their_digests(command: Command, file: str) -> None:
    keys = ("secret-key-1", "secret-key-2", "secret-key-3")
    with serving(file) as service:
        for key, fault in zip(keys, ("", "status=402", "status=500"), strict=True):
            service.pay(key, fault=fault)
        logged = service.handlers()
    listed = command("keys", "list", "--store", file, "--json")
    table = command("keys", "list", "--store", file, "--limit", "1")

    digests = [digest(key) for key in keys]
    assert logged == digests
    claims = {claim["key"]: claim for claim in json.loads(listed.out)}
    first, second, third = (claims[one] for one in digests)
    assert (first["status"], first["answer_status"], first["mode"]) == ("completed", 201, "joined")
    assert (second["status"], second["answer_status"]) == ("completed", 402)
    assert (third["status"], third["answer_status"]) == ("released", None)
    assert first["created_at"] < first["expires_at"]
    assert first["lease_expires_at"] is None
    assert digests[2] in table.out
    assert digests[0] not in table.out
    assert "secret-key" not in listed.out + table.out


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
