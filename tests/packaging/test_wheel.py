"""The wheel works as installed, with the source out of reach."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from packages import Built, build, files_in, install

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "semel"

IMPORT_ALL_NAMES = """
import importlib, pkgutil, semel, semel.core, semel.sqlite, semel.memory
for name in semel.__all__:
    getattr(semel, name)
for module in pkgutil.walk_packages(semel.core.__path__, "semel.core."):
    importlib.import_module(module.name)
print(semel.__file__)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("built"))


def test_the_wheel_holds_every_file_of_the_package(built: Built) -> None:
    source = {
        file.relative_to(PACKAGE.parent).as_posix()
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {name for name in files_in(built.wheel) if name.startswith("semel/")} == source
    assert "semel/py.typed" in source
    assert any(name.endswith(".sql") for name in source)


def test_the_source_distribution_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    # Python 3.11 has the safe way to extract only in its later releases.
    subprocess.run(["tar", "-xzf", str(built.sdist), "-C", str(tmp_path)], check=True)
    again = build(next(tmp_path.iterdir()), tmp_path / "again")
    assert files_in(again.wheel) == files_in(built.wheel)


@pytest.mark.rule("B9", "Q5")
def test_without_extras_the_standard_library_is_enough(built: Built, tmp_path: Path) -> None:
    environment = install(tmp_path / "env", built.wheel)
    done = environment.run("python", "-c", IMPORT_ALL_NAMES)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(environment.site)


@pytest.mark.rule("Q5")
@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        ("cli", "semel.cli"),
        ("postgres", "semel.psycopg"),
        ("asyncpg", "semel.asyncpg"),
        ("sqlalchemy", "semel.sqlalchemy"),
        ("aiosqlite", "semel.sqlalchemy, aiosqlite"),
        ("fastapi", "semel.fastapi"),
        ("all", "semel.cli, semel.psycopg, semel.asyncpg, semel.sqlalchemy, semel.fastapi"),
    ],
)
def test_an_extra_brings_all_that_its_modules_need(
    built: Built, tmp_path: Path, extra: str, modules: str
) -> None:
    done = install(tmp_path / "env", built.wheel, extra).run("python", "-c", f"import {modules}")
    assert done.returncode == 0, done.stderr


@pytest.mark.rule("Q5")
def test_the_command_runs_with_the_extra_cli(built: Built, tmp_path: Path) -> None:
    done = install(tmp_path / "env", built.wheel, "cli").run("semel", "--help")
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


def test_the_command_says_which_extra_is_missing(built: Built, tmp_path: Path) -> None:
    done = install(tmp_path / "env", built.wheel).run("semel", "--help")
    assert done.returncode != 0
    assert "semel[cli]" in done.stderr
    assert "Traceback" not in done.stderr
