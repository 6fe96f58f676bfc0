"""The processes round the service: preparation, one server or several workers.

Everything that can be wrong with the settings, the store or the address is found
out here, in the process that was started, before a worker exists.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from uvicorn import Config, Server
from uvicorn.supervisors import Multiprocess

from semel.errors import UsageError
from semel.guard import AsyncGuard
from semel.opening import open_async_store, refuse_missing_file
from semel.service.app import create_app
from semel.service.payments import payments_in
from semel.service.settings import VARIABLE, Settings

BACKLOG = 2048
# Requests get this long to end after SIGTERM; then they are cancelled.
GRACE_SECONDS = 5
START_SECONDS = 60.0
LONGEST_TEMPDIR = 40

Announce = Callable[[str], None]


async def prepare(settings: Settings, *, migrate: bool) -> None:
    """Make sure that the service can work with these settings.

    Args:
        settings: what it is told.
        migrate: make or renew the tables first.

    Raises:
        UsageError: settings that can not work.
        StoreUnavailableError: the store can not be reached.
        StoreSchemaError: tables are missing or old.
    """
    if not migrate:
        refuse_missing_file(settings.store)
    store = open_async_store(settings.store, tables=settings.tables, max_connections=2)
    guard = AsyncGuard(store, settings.options)
    # One connection first: a pool would say that it waited, but not why.
    with store.link():
        pass
    async with guard:
        payments = payments_in(store)
        if migrate:
            await store.migrate()
            await payments.migrate()
        await store.check()
        await payments.check()


def run(settings: Settings, *, host: str, port: int, workers: int, announce: Announce) -> bool:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: what the service is told; see `prepare`.
        host: the address to listen on.
        port: the port; 0 takes a free one.
        workers: how many processes; above one, those that die are replaced.
        announce: is told the service's URL once it answers.

    Returns:
        False where the service could not be started.

    Raises:
        UsageError: the address can not be used.
    """
    with _listening(host, port) as listener:
        url = _url(host, listener.getsockname()[1])
        signal.signal(signal.SIGTERM, _leave)
        if workers == 1:
            return _run_one(settings, listener, lambda: announce(url))
        os.environ[VARIABLE] = settings.to_json()
        return _run_several(workers, listener, lambda: announce(url))


@contextmanager
def holding(settings: Settings) -> Iterator[Settings]:
    """Give the service a folder for held requests, as long as it runs."""
    # The name of a socket has room for about a hundred characters.
    long = len(tempfile.gettempdir()) > LONGEST_TEMPDIR
    folder = tempfile.mkdtemp(prefix="semel-holds-", dir="/tmp" if long else None)  # noqa: S108
    try:
        yield replace(settings, holds=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_log(path: str | None) -> None:
    """Make sure that the handler log can be written; raises `UsageError`."""
    if path is None:
        return
    try:
        with Path(path).open("ab"):
            pass
    except OSError as error:
        raise UsageError(f"the handler log {path} can not be written: {error.strerror}") from error


def is_loopback(host: str) -> bool:
    """Say whether an address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _leave(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"can not listen on {host}, port {port} ({reason}): "
                "choose another --port (0 takes a free one) or --host"
            ) from error
        listener.set_inheritable(True)
        yield listener


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _config(app: object, workers: int = 1) -> Config:
    return Config(
        app,  # type: ignore[arg-type]  # an application, or where its factory is
        factory=isinstance(app, str),
        workers=workers,
        lifespan="on",
        ws="none",
        access_log=False,
        log_level="warning",
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


class _Announcing(Server):
    """A server that says when it has started."""

    def __init__(self, config: Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell()


def _run_one(settings: Settings, listener: socket.socket, started: Callable[[], None]) -> bool:
    server = _Announcing(_config(create_app(settings)), started)
    with suppress(KeyboardInterrupt):
        server.run([listener])
    return server.started


def _run_several(workers: int, listener: socket.socket, started: Callable[[], None]) -> bool:
    """Run uvicorn's supervisor; its workers are started anew and share the socket."""
    supervisor = Multiprocess(
        _config("semel.service.app:from_environment", workers), sockets=[listener]
    )
    threading.Thread(target=_tell_when_answered, args=(listener, started), daemon=True).start()
    supervisor.run()
    return not any((process.exitcode or 0) > 0 for process in supervisor.processes)


def _tell_when_answered(listener: socket.socket, started: Callable[[], None]) -> None:
    """Send one request, which waits in the socket's queue until a worker takes it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    connection = http.client.HTTPConnection(host, port, timeout=START_SECONDS)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return  # the supervisor says what went wrong
    finally:
        connection.close()
    started()
