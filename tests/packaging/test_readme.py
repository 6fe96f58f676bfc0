"""The README's example does what the README says, as installed and with its own commands.

The wheel is in an environment with nothing but the extras that the README names. Its
console lines run as they stand, but for the address of the database and the port.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from packages import Built, Environment, build, install
from serving import until

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "postgresql+asyncpg://postgres@127.0.0.1/shop"


def block(name: str, kind: str) -> str:
    """Return the first block of a kind in one of the two READMEs."""
    text = (ROOT / name).read_text("utf-8")
    return str(re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0])


def commands() -> dict[str, str]:
    """Return the README's console lines by the program that they run."""
    lines = [line.removeprefix("$ ") for line in block("README.md", "console").splitlines()]
    return {line.split()[0]: line for line in lines}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("built"))


@pytest.fixture
def environment(built: Built, tmp_path: Path) -> Environment:
    (extras,) = re.findall(r"semel\[(.*?)\]", commands()["pip"])
    return install(tmp_path / "env", built.wheel, *extras.split(","))


@contextmanager
def uvicorn(environment: Environment, line: str) -> Iterator[str]:
    """Run the README's server on a free port; yield its address."""
    program, *arguments = shlex.split(line)
    log = environment.folder / "uvicorn.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [str(environment.folder / "bin" / "python"), "-m", program, *arguments, "--port", "0"],
            cwd=environment.folder,
            env={"PYTHONUNBUFFERED": "1"},
            stderr=output,
        )
    try:
        until(lambda: "running on" in log.read_text("utf-8") or server.poll() is not None)
        (address,) = re.findall(r"running on (http://\S+)", log.read_text("utf-8"))
        yield address
    finally:
        server.terminate()
        server.wait(20)


def answer(line: str, address: str) -> tuple[int, str, str]:
    """Run a curl command; return status, head and body."""
    asked = line.replace("http://127.0.0.1:8000", address)
    done = subprocess.run(shlex.split(asked), capture_output=True, text=True, check=True)
    head, _, body = done.stdout.replace("\r", "").partition("\n\n")
    return int(head.split()[1]), head.lower(), body


@pytest.mark.rule("A2", "R2", "W1")
def test_the_same_curl_twice_makes_one_payment(environment: Environment, pg_database: str) -> None:
    url = pg_database.replace("postgresql://", "postgresql+asyncpg://", 1)
    said, code = commands(), block("README.md", "python")
    assert ADDRESS in code
    assert said["semel"].endswith(ADDRESS)
    shop = environment.folder / "shop.py"
    shop.write_text(code.replace(ADDRESS, url), "utf-8")
    with psycopg.connect(pg_database, autocommit=True) as admin:
        admin.execute(shlex.split(said["psql"])[-1].encode())
        program, *arguments = shlex.split(said["semel"].replace(ADDRESS, url))
        migrated = environment.run(program, *arguments)
        assert migrated.returncode == 0, migrated.stderr

        def paid() -> list[tuple[object, ...]]:
            return admin.execute("SELECT shop, amount FROM payment").fetchall()

        curl = said["curl"]
        with uvicorn(environment, said["uvicorn"]) as address:
            first, again = answer(curl, address), answer(curl, address)
            assert (first[0], again[0]) == (201, 201)
            assert (first[2], paid()) == (again[2], [("shop-1", 500)])
            assert "idempotent-replayed: true" in again[1]
            assert "idempotent-replayed" not in first[1]
            keyless = curl.replace(" -H 'Idempotency-Key: order-1'", "")
            assert keyless != curl
            assert answer(curl.replace("500", "501"), address)[0] == 422
            assert answer(keyless, address)[0] == 400
        # The token is revoked: a moment ago this request would have had a replay.
        shop.write_text(shop.read_text("utf-8").replace('"demo-1"', '"demo-2"'), "utf-8")
        with uvicorn(environment, said["uvicorn"]) as address:
            assert answer(curl, address)[0] == 401
            assert answer(curl.replace("demo-1", "demo-2"), address)[2] == first[2]
        assert paid() == [("shop-1", 500)]


def test_both_languages_have_the_same_shape() -> None:
    def shape(name: str) -> list[int]:
        text = (ROOT / name).read_text("utf-8")
        return [
            len(re.findall(pattern, text, re.MULTILINE))
            for pattern in (r"^## ", r"^\|", r"^```", r"^\$ ", r"\]\(")
        ]

    def code(name: str) -> str:
        return re.sub(r"#.*", "", block(name, "python"))

    assert shape("README.md") == shape("README.ru.md")
    assert code("README.md") == code("README.ru.md")
    assert block("README.md", "console") == block("README.ru.md", "console")
