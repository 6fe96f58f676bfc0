"""The processes of a run: servers, the load, and the database they work on.

All of them end with the run, however that ends: servers and load stop when their
standard input does.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from bench.apps.common import CALLERS, POOL, SCHEMA
from bench.sides import IDEMKIT, Side
from semel.opening import open_async_store

ROOT = Path(__file__).resolve().parents[1]
VARIABLE = "SEMEL_BENCH_POSTGRES"
STANDARD = "postgresql://postgres@127.0.0.1:5432/postgres"
PEER = ROOT / "build" / "bench-idemkit"
REMEMBERED = "4096"  # settled keys; what `semel.Options` has by default

STOP_SECONDS = 10.0
TICKS = os.sysconf("SC_CLK_TCK")

Say = Callable[[str], None]


class RunError(Exception):
    """The run can not go on; its text says why."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What one round of load gave.

    Attributes:
        answers: all of them.
        counted: those within the time.
        seconds: the time.
        p50_ms: half of the answers took at most this long.
        p99_ms: 99 of 100 did.
        cpu_us: processor time of the server for an answer, in microseconds; `None`
            where the system does not tell.
    """

    answers: int
    counted: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_us: float | None

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.counted / self.seconds


@dataclass(frozen=True, slots=True)
class Profile:
    """How a server is to profile itself.

    Attributes:
        file: what it writes at its end.
        profiler: one of `bench.profilers.PROFILERS`.
    """

    file: Path
    profiler: str


class Server:
    """A running application.

    Attributes:
        side: what it is.
        caller: whose requests it is sent, and nobody else is.
        port: where it listens.
    """

    def __init__(self, side: Side, caller: str, process: subprocess.Popen[str], port: int) -> None:
        """Know it."""
        self.side = side
        self.caller = caller
        self.port = port
        self._process = process

    @property
    def name(self) -> str:
        """What it is called in the results."""
        return self.side.name

    def cpu_seconds(self) -> float | None:
        """Return the processor time that it has used so far."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        if not stat.exists():
            return None
        fields = stat.read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


class Load:
    """The process that sends the requests."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Know it."""
        self._process = process

    def run(
        self, server: Server, seconds: float | None, keys: Sequence[str] | None = None
    ) -> Answers:
        """Send requests for some seconds, or each key once.

        Raises:
            RunError: an answer was not 201, or a connection broke.
        """
        order = {
            "port": server.port,
            "path": server.side.path,
            "caller": server.caller,
            "connections": POOL,
            "seconds": seconds,
            "keys": keys,
        }
        before = server.cpu_seconds()
        given, taken = self._process.stdin, self._process.stdout
        assert given is not None
        assert taken is not None
        given.write(json.dumps(order) + "\n")
        given.flush()
        line = taken.readline()
        after = server.cpu_seconds()
        if not line:
            raise RunError(f"the load broke off at {server.name}")
        found = json.loads(line)
        wrong = found.pop("wrong")
        if wrong or not found["answers"]:
            raise RunError(f"{server.name} gave wrong answers: {wrong or 'none at all'}")
        cpu = None if before is None or after is None else after - before
        return Answers(**found, cpu_us=cpu and cpu / found["answers"] * 1e6)


@contextmanager
def process(command: Sequence[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python process of this package until the block ends."""
    running = subprocess.Popen(  # noqa: S603 - our own
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is for the run, which then ends them
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    try:
        yield running
    finally:
        assert running.stdin is not None
        running.stdin.close()
        try:
            running.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


@contextmanager
def load() -> Iterator[Load]:
    """Start the load; it does nothing until it is told to."""
    with process([sys.executable, "-m", "bench.load"]) as running:
        yield Load(running)


@contextmanager
def serving(
    sides: Sequence[Side], database: str, *, profile: Profile | None = None
) -> Iterator[list[Server]]:
    """Start the applications of some sides, all of them at once.

    Args:
        sides: at most as many as there are callers.
        database: the address of the run's own.
        profile: where and how they are to profile themselves.

    Raises:
        RunError: one did not start.
    """
    with ExitStack() as stack:
        started = []
        for side in sides:
            python = str(PEER / "bin" / "python") if side is IDEMKIT else sys.executable
            command = [python, "-m", "bench.serve", f"bench.apps.{side.app}"]
            if profile is not None:
                command += ["--profile", str(profile.file), "--profiler", profile.profiler]
            defaults = {"SEMEL_BENCH_DATABASE": database, "SEMEL_BENCH_REMEMBERED": REMEMBERED}
            environment = {**defaults, **side.environment}
            started.append(stack.enter_context(process(command, **environment)))
        servers = []
        for side, running, caller in zip(sides, started, CALLERS, strict=False):
            assert running.stdout is not None
            port = running.stdout.readline()
            if not port:
                raise RunError(f"{side.app} did not start: see above")
            servers.append(Server(side, caller, running, int(port)))
        yield servers


def admin(address: str | None = None) -> psycopg.Connection[Any]:
    """Connect to the server of the run.

    Raises:
        RunError: it does not answer.
    """
    address = address or os.environ.get(VARIABLE, STANDARD)
    try:
        return psycopg.connect(address, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as error:
        text = " ".join(str(error).split())
        raise RunError(f"no PostgreSQL to measure on (set {VARIABLE}): {text}") from error


@contextmanager
def fresh_database() -> Iterator[str]:
    """Yield the address of a new database without tables; drop it afterwards."""
    server = os.environ.get(VARIABLE, STANDARD)
    name = f"semel_bench_{os.getpid()}_{secrets.token_hex(4)}"
    quoted = sql.Identifier(name)
    with admin() as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(quoted))
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        with admin() as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(quoted))


async def make_tables(database: str) -> None:
    """Make the application's tables and Semel's."""
    with admin(database) as connection:
        connection.execute(SCHEMA)
    store = open_async_store(database)
    await store.open()
    try:
        await store.migrate()
    finally:
        await store.aclose()
