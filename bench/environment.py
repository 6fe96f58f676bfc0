"""Where and on what a run was made."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from bench import peer
from bench.processes import ROOT, admin

PACKAGES = (
    "asyncpg",
    "fastapi",
    "httptools",
    "psycopg",
    "psycopg-pool",
    "pydantic",
    "semel",
    "sqlalchemy",
    "starlette",
    "uvicorn",
    "uvloop",
)
GIT_SECONDS = 10.0
# What a figure depends on: the library, and the benchmark but for its own results.
MEASURED = ("src", "bench", ":(exclude)bench/results.json", ":(exclude)bench/RESULTS.md")


def describe() -> dict[str, Any]:
    """Return versions, processors, how busy they are, and the commit.

    Raises:
        RunError: PostgreSQL does not answer.
    """
    with admin() as connection:
        row = connection.execute("SHOW server_version").fetchone()
    return {
        "commit": commit(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "postgresql": row[0] if row else None,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average_before": round(os.getloadavg()[0], 2),
        "packages": {name: _version(name) for name in PACKAGES},
        "idemkit_packages": peer.versions(),
    }


def commit() -> str:
    """Return the id of the commit, with `+changes` where what is measured differs from it."""
    found = _git("rev-parse", "--short=12", "HEAD")
    if not found:
        return "unknown"
    return f"{found}+changes" if _git("status", "--porcelain", "--", *MEASURED) else found


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - git, with words of ours
            ["git", *arguments],  # noqa: S607 - wherever it is
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
