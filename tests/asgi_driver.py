"""A server's side of ASGI without a server, for tests that watch every message.

It holds the application to the protocol: a start, then bodies up to one that is
the last, names in lower case, lengths as declared; and it says `http.disconnect`
only after the answer is complete or the client has left, as servers do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semel.web.asgi_types import App, Message

Pairs = list[tuple[bytes, bytes]]


@dataclass
class Reply:
    """What the client got.

    Attributes:
        status: 0 where nothing was sent.
        complete: whether the end of the body came.
    """

    status: int = 0
    headers: Pairs = field(default_factory=list)
    body: bytes = b""
    complete: bool = False

    def all(self, name: str) -> list[str]:
        return [v.decode("latin-1") for k, v in self.headers if k == name.encode("latin-1")]

    def get(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) <= 1, values
        return values[0] if values else None

    @property
    def replayed(self) -> bool:
        return self.get("idempotent-replayed") == "true"

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """The problem's name, or "" where the answer is none."""
        if self.get("content-type") != "application/problem+json":
            return ""
        content = self.json()
        assert content["status"] == self.status
        kind: str = content["type"]
        return kind.removeprefix("urn:semel:problem:")


class Conversation:
    """One request to an application, and what it answers.

    Attributes:
        scope, receive, send: what the application is called with.
        sent: the messages that it sent.
        left: set when the client has left.
        failing: make `send` raise OSError once the client has left (ASGI 2.4).
    """

    def __init__(  # noqa: PLR0913 - a request has that many parts
        self,
        app: App,
        method: str = "POST",
        target: str = "/payments",
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | Pairs | None = None,
        body: bytes | Sequence[bytes] = b"{}",
        scope: Mapping[str, Any] | None = None,
        failing: bool = False,
    ) -> None:
        self.app = app
        path, _, query = target.partition("?")
        pairs: Pairs = [(b"host", b"test")]
        if key is not None:
            pairs.append((b"idempotency-key", key if isinstance(key, bytes) else _raw(key)))
        if isinstance(headers, Mapping):
            headers = [(_raw(name).lower(), _raw(value)) for name, value in headers.items()]
        pairs += headers or ()
        chunks = [body] if isinstance(body, bytes) else list(body)
        if not any(name in {b"content-length", b"transfer-encoding"} for name, _ in pairs):
            pairs.append((b"content-length", b"%d" % sum(map(len, chunks))))
        if not any(name == b"content-type" for name, _ in pairs):
            pairs.append((b"content-type", b"application/json"))
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "headers": pairs,
            "client": ("127.0.0.1", 1),
            "server": ("test", 80),
            "extensions": {
                "http.response.pathsend": {},
                "http.response.zerocopysend": {},
                "http.response.trailers": {},
                "http.response.early_hint": {},
            },
            **(scope or {}),
        }
        self.sent: list[Message] = []
        self.left = asyncio.Event()
        self.failing = failing
        self.taken = 0
        self._chunks = chunks
        self._changed = asyncio.Condition()
        self._complete = asyncio.Event()

    async def receive(self) -> Message:
        if self.left.is_set():
            return {"type": "http.disconnect"}
        if self.taken < len(self._chunks):
            self.taken += 1
            more = self.taken < len(self._chunks)
            return {
                "type": "http.request",
                "body": self._chunks[self.taken - 1],
                "more_body": more,
            }
        waits = [asyncio.ensure_future(e.wait()) for e in (self.left, self._complete)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.left.is_set():
            if self.failing:
                raise OSError("the client left")
            return
        self._check(message)
        self.sent.append(dict(message))
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._complete.set()
        async with self._changed:
            self._changed.notify_all()

    def _check(self, message: Message) -> None:
        kind = message["type"]
        started = any(m["type"] == "http.response.start" for m in self.sent)
        if self._complete.is_set():
            raise RuntimeError(f"{kind} after the end")
        if kind == "http.response.start":
            if started:
                raise RuntimeError("started twice")
            for name, value in message["headers"]:
                assert isinstance(name, bytes)
                assert isinstance(value, bytes)
                assert name == name.lower()
            assert not message.get("trailers")
        elif kind == "http.response.body":
            if not started:
                raise RuntimeError("a body before the start")
            assert isinstance(message.get("body", b""), bytes)
        elif kind not in {"http.response.early_hint", "http.response.debug"}:
            raise RuntimeError(f"what is {kind}?")

    async def run(self) -> Reply:
        """Call the application, and return what came."""
        await self.app(self.scope, self.receive, self.send)
        return self.reply

    def start(self) -> asyncio.Task[Reply]:
        """Call the application in a task of its own."""
        return asyncio.create_task(self.run())

    async def until(self, condition: Callable[[Reply], object]) -> None:
        """Wait until what was sent fulfils a condition."""
        async with self._changed:
            await self._changed.wait_for(lambda: condition(self.reply))

    @property
    def reply(self) -> Reply:
        reply = Reply()
        for message in self.sent:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = [tuple(pair) for pair in message["headers"]]
            elif message["type"] == "http.response.body":
                reply.body += message.get("body", b"")
                reply.complete = not message.get("more_body", False)
        if reply.complete and (declared := reply.get("content-length")) is not None:
            assert int(declared) == len(reply.body)
        return reply


def _raw(text: str) -> bytes:
    return text.encode("latin-1")


async def call(app: App, method: str = "POST", target: str = "/payments", **parts: Any) -> Reply:
    """Send a request and return the reply; see `Conversation`."""
    return await Conversation(app, method, target, **parts).run()
