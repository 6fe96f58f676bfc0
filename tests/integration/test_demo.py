"""`semel demo`: the story holds, a planted fault is noticed, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from serving import SECONDS, SEMEL, semel, until

PLANTED = """
import asyncio, sys
from semel.cli.telling import run_demo
sys.exit(asyncio.run(run_demo("", once=True, options=sys.argv[1:])))
"""
LINES = (
    "[201, 409, 409, 409, 409]",
    "201, replayed, same bytes",
    "422",
    "201, replayed, 1 payment",
    "201, 1 payment",
    "3",
)


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


@pytest.mark.rule("T1")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_every_line_holds(request: pytest.FixtureRequest, kind: str) -> None:
    store = ["--store", request.getfixturevalue("pg_database")] if kind == "postgresql" else []
    with tempfile.TemporaryDirectory() as folder:
        done = semel("demo", "--once", *store, TMPDIR=folder)
        left = list(Path(folder).iterdir())

    assert (done.returncode, done.stderr) == (0, "")
    shown = [line for line in done.stdout.splitlines() if "✓" in line]
    assert len(shown) == len(LINES)
    for line, seen in zip(shown, LINES, strict=True):
        assert seen in line
    assert "Every line held." in done.stdout
    assert left == []


@pytest.mark.rule("T1")
def test_the_same_database_can_be_used_again(pg_database: str) -> None:
    for _ in range(2):
        assert semel("demo", "--once", "--store", pg_database).returncode == 0


@pytest.mark.rule("T1")
def test_a_planted_fault_is_noticed() -> None:
    # A service that ignores the amount replays where it should refuse.
    done = subprocess.run(
        [sys.executable, "-c", PLANTED, "--ignore", "/amount"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS * 2,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )

    assert done.returncode == 1
    broken = [line for line in done.stdout.splitlines() if "✗" in line]
    assert len(broken) == 1
    assert "another amount" in broken[0]
    assert "201, replayed" in broken[0]
    assert "1 of 6 lines did not hold." in done.stdout


def test_a_terminal_without_unicode_gets_plain_signs() -> None:
    done = semel("demo", "--once", PYTHONIOENCODING="ascii:strict", PYTHONUTF8="0")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert len(re.findall(r"^\W*ok ", done.stdout, re.MULTILINE)) == len(LINES)


@contextmanager
def open_demo() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the demo until it has left its service open; gives its process and last lines."""
    process = subprocess.Popen(
        [*SEMEL, "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    try:
        assert process.stdout is not None
        said = ""
        while "count=true" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        yield process, said
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=SECONDS)


@pytest.mark.rule("T1")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_leaves_the_service_open_and_takes_it_along(how: signal.Signals) -> None:
    with open_demo() as (process, said):
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found
        curl = next(line for line in said.splitlines() if line.startswith("curl -i"))
        assert "Idempotency-Key" in curl
        headers = {"Authorization": "Bearer demo-1"}
        count = httpx.get(f"{found[0]}/payments?count=true", headers=headers)
        services = children(process.pid)
        process.send_signal(how)
        code = process.wait(SECONDS)

        assert count.json() == {"count": 3}
        assert len(services) == 1
        assert code == 0
        assert not Path(f"/proc/{services[0]}").exists()


@pytest.mark.rule("T1")
def test_ended_in_the_middle_it_leaves_no_process() -> None:
    process = subprocess.Popen(
        [*SEMEL, "demo", "--once"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    services = until(lambda: children(process.pid))
    process.terminate()

    assert process.wait(SECONDS) == 130
    assert not [pid for pid in services if Path(f"/proc/{pid}").exists()]
