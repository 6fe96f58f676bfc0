"""The wheel works as installed, with the source out of reach.

Each environment is empty but for the wheel and, where a test asks for an extra,
the distributions that the extra declares and those that they declare in turn.
They are linked from the environment that runs the tests: nothing is downloaded,
and a dependency that pyproject.toml forgot is missing here too.
"""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


class Built(NamedTuple):
    """The two files of a release."""

    wheel: Path
    sdist: Path


class Environment(NamedTuple):
    """An environment that Semel is installed in."""

    folder: Path

    @property
    def site(self) -> Path:
        """Where its distributions are."""
        return next(self.folder.glob("lib/python*/site-packages"))

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, far from the source and without our environment variables."""
        command = [str(self.folder / "bin" / program), *arguments]
        return subprocess.run(
            command, cwd=self.folder, env={}, capture_output=True, text=True, check=False
        )


def build(source: Path, target: Path) -> Built:
    """Build wheel and source distribution with what is installed: no isolation, no network."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return Built(next(target.glob("*.whl")), next(target.glob("*.tar.gz")))


def files_in(wheel: Path) -> set[str]:
    """Return the names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def install(folder: Path, wheel: Path, *extras: str) -> Environment:
    """Make an environment of the wheel and what these extras declare."""
    venv.create(folder, symlinks=True)
    environment = Environment(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, *options, str(wheel)], check=True)
    installed = metadata.Distribution.at(next(environment.site.glob("semel-*.dist-info")))
    for distribution in declared(installed, frozenset(extras)):
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            (environment.site / top).symlink_to(str(distribution.locate_file(top)))
    return environment


def declared(semel: metadata.Distribution, extras: frozenset[str]) -> list[metadata.Distribution]:
    """Return the distributions that these extras need, as far as metadata says so."""
    found: dict[str, metadata.Distribution] = {"semel": semel}
    todo = [("semel", extras)]
    done = set()
    while todo:
        name, asked = step = todo.pop()
        if step in done:
            continue
        done.add(step)
        for requirement in map(Requirement, found[name].requires or ()):
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", *asked)):
                continue
            needed = canonicalize_name(requirement.name)
            if needed not in found:
                found[needed] = metadata.distribution(needed)
            todo.append((needed, frozenset(requirement.extras)))
    del found["semel"]
    return list(found.values())


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
    [("cli", "semel.cli"), ("postgres", "semel.psycopg"), ("all", "semel.cli, semel.psycopg")],
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
