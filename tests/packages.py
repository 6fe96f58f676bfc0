"""Build Semel and install it into an empty environment, without a network.

An environment holds nothing but the wheel and, where a test asks for an extra, the
distributions that the extra declares and those that they declare in turn. They are
linked from the environment that runs the tests, so a dependency that pyproject.toml
forgot is missing here too.
"""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


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
