"""idemkit in an environment of its own, as requirements/bench-idemkit.txt pins it."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping

from bench.processes import PEER, ROOT, RunError, Say

PINS = ROOT / "requirements" / "bench-idemkit.txt"
STAMP = PEER / ".installed"
INSTALL_SECONDS = 300.0
TABLES_SECONDS = 30.0


def prepare(say: Say) -> None:
    """Make the environment, unless it is as the pins have it.

    Raises:
        RunError: a package could not be had.
    """
    pins = PINS.read_text(encoding="utf-8") + sys.version
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == pins:
        return
    say(f"installing {PINS.relative_to(ROOT)} into {PEER.relative_to(ROOT)} …")
    shutil.rmtree(PEER, ignore_errors=True)
    venv.create(PEER, with_pip=True)
    command = [str(PEER / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    options = ["--disable-pip-version-check", "--require-hashes", "--requirement", str(PINS)]
    try:
        subprocess.run([*command, *options], check=True, timeout=INSTALL_SECONDS)  # noqa: S603 - our own
    except subprocess.SubprocessError as error:
        raise RunError(f"idemkit could not be installed: {error}") from error
    STAMP.write_text(pins, encoding="utf-8")


def make_tables(database: str) -> None:
    """Make idemkit's tables, by its own command.

    Raises:
        RunError: it failed.
    """
    try:
        subprocess.run(  # noqa: S603 - our own
            [PEER / "bin" / "idemkit", "init-pg", database],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=TABLES_SECONDS,
        )
    except subprocess.SubprocessError as error:
        raise RunError(f"idemkit could not make its tables: {error}") from error


def versions() -> Mapping[str, str]:
    """Return the versions in that environment of what the comparison rests on."""
    places = [str(path) for path in PEER.glob("lib/python*/site-packages")]
    found = {
        each.name.lower(): each.version for each in importlib.metadata.distributions(path=places)
    }
    wanted = ("asyncpg", "idemkit", "starlette", "uvicorn", "uvloop")
    return {name: found[name] for name in wanted if name in found}
