"""The wire into an ASGI application of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from semel.check.message import Answer, NoAnswerError, Request
from semel.check.wire.inside import failed_with, framed, split_in_two, whole
from semel.check.wire.protocol import Loss, Race

Message: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[Message]],
        Callable[[Message], Awaitable[None]],
    ],
    Awaitable[None],
]

# Time for an application that was left to find it out, before it is cancelled. Seconds.
GRACE = 10.0


@dataclass
class _Exchange:
    """One request on its way through the application."""

    pieces: list[bytes]
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    first_byte: asyncio.Event = field(default_factory=asyncio.Event)
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    completed_at: float = 0.0
    truncated: bool = False

    async def receive(self) -> Message:
        """Hand out the body; its last piece only when it may go."""
        if self.pieces:
            if len(self.pieces) == 1:
                await self.ready.wait()
                self.completed_at = time.perf_counter()
            piece = self.pieces.pop(0)
            if not self.pieces and self.truncated:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": piece, "more_body": bool(self.pieces)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take what the application answers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(bytes(name), bytes(value)) for name, value in message["headers"]]
        elif message["type"] == "http.response.body":
            self.chunks.append(bytes(message.get("body", b"")))
            self.first_byte.set()
            if not message.get("more_body", False):
                self.complete.set()
                # A server tells an application so when all was sent.
                self.gone.set()


class AsgiWire:
    """Puts requests to an ASGI application in this process.

    The application's lifespan is its owner's affair. A client that leaves is an
    `http.disconnect`; an answer is lost by not looking at it.
    """

    versions = ("1.1",)

    def __init__(
        self, app: App, *, timeout: float = 10.0, state: dict[str, Any] | None = None
    ) -> None:
        """Take an application.

        Args:
            app: the application.
            timeout: seconds for one answer.
            state: what its lifespan keeps for its requests.
        """
        self._app = app
        self._state = state or {}
        self._timeout = timeout
        self._running: set[asyncio.Task[None]] = set()

    async def send(self, request: Request) -> Answer:
        """Send a request and read its answer."""
        return whole((await self._at_once([request])).answers[0])

    async def together(self, requests: Sequence[Request], *, version: str = "1.1") -> Race:
        """Let every request get to its last byte, then hand out the last bytes."""
        del version
        return await self._at_once(requests)

    async def _at_once(self, requests: Sequence[Request]) -> Race:
        exchanges = [_Exchange(list(split_in_two(request.body))) for request in requests]
        tasks = [
            self._start(exchange, request)
            for exchange, request in zip(exchanges, requests, strict=True)
        ]
        if len(requests) > 1:
            # Once round the loop for each: so far that nothing but a last byte is missing.
            await asyncio.sleep(0)
        for exchange in exchanges:
            exchange.ready.set()
        answers = await asyncio.gather(*map(self._answer, exchanges, tasks))
        sent = [exchange.completed_at for exchange in exchanges if exchange.completed_at]
        return Race(tuple(answers), max(sent) - min(sent) if sent else 0.0)

    async def chase(self, first: Request, second: Request) -> tuple[Answer, Answer]:
        """Start the second as soon as the first one's answer begins."""
        chased = _Exchange([first.body])
        chased.ready.set()
        task = self._start(chased, first)
        begun = asyncio.ensure_future(chased.first_byte.wait())
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        follower = await self.send(second)
        return whole(await self._answer(chased, task)), follower

    async def lose(self, request: Request, how: Loss) -> Answer:
        """Send a request; the answer is the one that the caller is not to have seen."""
        del how
        return await self.send(request)

    async def leave(self, request: Request, after: float) -> None:
        """Send a request, and tell the application a little later that nobody waits."""
        await self._leave(_Exchange([request.body]), request, after)

    async def break_off(self, request: Request) -> None:
        """Send half of a body, then tell the application that the client is gone."""
        half = len(request.body) // 2
        exchange = _Exchange([request.body[:half], b""], truncated=True)
        await self._leave(exchange, request, 0.0)

    async def _leave(self, exchange: _Exchange, request: Request, after: float) -> None:
        exchange.ready.set()
        task = self._start(exchange, request)
        if after:
            await asyncio.wait({task}, timeout=after)
        exchange.gone.set()
        await asyncio.wait({task}, timeout=GRACE)
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task

    async def aclose(self) -> None:
        """Wait for applications that still work after their answer."""
        if self._running:
            await asyncio.wait(self._running, timeout=GRACE)

    def _start(self, exchange: _Exchange, request: Request) -> asyncio.Task[None]:
        address = urlsplit(request.url)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": address.scheme,
            "path": unquote(address.path or "/"),
            "raw_path": (address.path or "/").encode("ascii"),
            "query_string": address.query.encode("ascii"),
            "root_path": "",
            "headers": list(framed(request)),
            "client": ("127.0.0.1", 1),
            "server": (address.hostname, address.port or 80),
            "state": self._state.copy(),
        }
        task = asyncio.create_task(_run(self._app, scope, exchange))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _answer(
        self, exchange: _Exchange, task: asyncio.Task[None]
    ) -> Answer | NoAnswerError:
        began = time.perf_counter()
        complete = asyncio.ensure_future(exchange.complete.wait())
        await asyncio.wait(
            {task, complete}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED
        )
        complete.cancel()
        if exchange.complete.is_set() and exchange.status is not None:
            return Answer(
                status=exchange.status,
                headers=tuple(exchange.headers),
                body=b"".join(exchange.chunks),
                seconds=time.perf_counter() - began,
            )
        if not task.done():
            task.cancel()
            return NoAnswerError(f"no answer within {self._timeout:g} s")
        error = task.exception()
        return failed_with(error) if error else NoAnswerError("the application never answered")


async def _run(app: App, scope: MutableMapping[str, Any], exchange: _Exchange) -> None:
    await app(scope, exchange.receive, exchange.send)
