"""The wire into a WSGI application of this process: a thread for each request."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from semel.check.message import Answer, NoAnswerError, Request
from semel.check.wire.inside import failed_with, framed, needs_network, whole
from semel.check.wire.protocol import Loss, Race

App: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _GatedBody(io.BytesIO):
    """A body whose reader waits until all the others read theirs."""

    def __init__(self, body: bytes, gate: threading.Barrier) -> None:
        super().__init__(body)
        self._gate: threading.Barrier | None = gate
        self.passed_at = 0.0

    def _pass(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            try:
                gate.wait(1.0)
            except threading.BrokenBarrierError:
                # Somebody was refused before the body was read: go on without it.
                gate.abort()
            self.passed_at = time.perf_counter()

    def read(self, size: int | None = -1, /) -> bytes:
        self._pass()
        return super().read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        self._pass()
        return super().readline(size)


class WsgiWire:
    """Puts requests to a WSGI application in this process.

    An answer is lost by not looking at it. WSGI has no word for a client that left.
    """

    versions = ("1.1",)

    def __init__(self, app: App, *, timeout: float = 10.0, threads: int = 64) -> None:
        """Take an application; `timeout` is in seconds, for one answer."""
        self._app = app
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="semel-check")

    async def send(self, request: Request) -> Answer:
        """Send a request and read its answer."""
        return whole((await self.together([request])).answers[0])

    async def together(self, requests: Sequence[Request], *, version: str = "1.1") -> Race:
        """Let every request get to the reading of its body, then let all read."""
        del version
        gate = threading.Barrier(len(requests))
        bodies = [_GatedBody(request.body, gate) for request in requests]
        answers = await asyncio.gather(*map(self._answer, requests, bodies))
        passed = [body.passed_at for body in bodies if body.passed_at]
        return Race(tuple(answers), max(passed) - min(passed) if passed else 0.0)

    async def chase(self, first: Request, second: Request) -> tuple[Answer, Answer]:
        """Send one after the other: an answer has no first byte here."""
        return await self.send(first), await self.send(second)

    async def lose(self, request: Request, how: Loss) -> Answer:
        """Send a request; the answer is the one that the caller is not to have seen."""
        del how
        return await self.send(request)

    async def leave(self, request: Request, after: float) -> None:
        """Not possible."""
        del request, after
        raise needs_network("a client that leaves")

    async def break_off(self, request: Request) -> None:
        """Not possible."""
        del request
        raise needs_network("a request that breaks off")

    async def aclose(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, request: Request, body: _GatedBody) -> Answer | NoAnswerError:
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._threads, _call, self._app, request, body)
        done, _ = await asyncio.wait({call}, timeout=self._timeout)
        if not done:
            return NoAnswerError(f"no answer within {self._timeout:g} s")
        return call.result()


def _call(app: App, request: Request, body: _GatedBody) -> Answer | NoAnswerError:
    """Call the application as a server does (PEP 3333)."""
    began = time.perf_counter()
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], *_: object) -> object:
        started[:] = [(status, headers)]
        return written.append

    written: list[bytes] = []
    try:
        chunks = app(_environ(request, body), start_response)
        try:
            written.extend(chunks)
        finally:
            getattr(chunks, "close", lambda: None)()
    except Exception as error:  # noqa: BLE001 - whatever an application raises is its answer
        return failed_with(error)
    if not started:
        return NoAnswerError("the application never called start_response")
    status, headers = started[0]
    return Answer(
        status=int(status.split(" ", 1)[0]),
        headers=tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers),
        body=b"".join(written),
        seconds=time.perf_counter() - began,
    )


def _environ(request: Request, body: _GatedBody) -> dict[str, Any]:
    address = urlsplit(request.url)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(address.path or "/").decode("latin-1"),
        "QUERY_STRING": address.query,
        "SERVER_NAME": address.hostname,
        "SERVER_PORT": str(address.port or 80),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": address.scheme,
        "wsgi.input": body,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in framed(request):
        variable = name.decode("latin-1").upper().replace("-", "_")
        if variable not in {"CONTENT_TYPE", "CONTENT_LENGTH"}:
            variable = f"HTTP_{variable}"
        text = value.decode("latin-1")
        # As servers join lines of one name: RFC 9110 section 5.3.
        environ[variable] = f"{environ[variable]}, {text}" if variable in environ else text
    return environ
