"""B2: what the guard costs within the process: the store is memory, there is no server.

The same requests are put straight to the bare and to the guarded application, one
after the other; the figure is the difference of their times for a request.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

import uvloop
from starlette.types import ASGIApp, Message, Scope

from bench.apps import on_memory
from bench.apps.common import CALLERS
from bench.figures import KINDS, Figure
from bench.load import BODY
from bench.processes import RunError
from bench.run import Run

ROUNDS, REQUESTS = 15, 2000
TRIAL = 3, 300
KEYS = 500  # settled ones; fewer than are remembered
MICRO = 1e6
CREATED = 201


class Client:
    """Puts requests to an application, one at a time.

    Attributes:
        wrong: answers with another status than 201, or whose replay marker is not
            as it should be.
    """

    def __init__(self, app: ASGIApp, method: str, path: str, *, replayed: bool = False) -> None:
        """Prepare the request."""
        self.wrong = 0
        self._app = app
        self._replayed = replayed
        self._fixed = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 40000),
        }
        self._headers = [
            (b"host", b"127.0.0.1"),
            (b"authorization", f"Bearer {CALLERS[0]}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(BODY)).encode()),
        ]

    async def request(self, key: str) -> None:
        """Send one, and look at status and marker of the answer."""
        headers = [*self._headers, (b"idempotency-key", key.encode())]
        scope: Scope = {**self._fixed, "headers": headers, "state": {}}
        begun: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": BODY, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.append(message)

        await self._app(scope, receive, send)
        (start,) = begun
        marked = any(name == b"idempotent-replayed" for name, _ in start["headers"])
        if start["status"] != CREATED or marked is not self._replayed:
            self.wrong += 1

    async def time(self, keys: Iterator[str], count: int) -> float:
        """Send some; return microseconds for one."""
        wanted = list(itertools.islice(keys, count))
        begin = time.perf_counter()
        for key in wanted:
            await self.request(key)
        return (time.perf_counter() - begin) / count * MICRO


def measure_all(run: Run) -> Iterator[Figure]:
    """Measure in a loop like the servers'."""
    run.say("B2")
    found = uvloop.run(_rounds(*((ROUNDS, REQUESTS) if run.is_full else TRIAL)))
    sides = {name: {"us": round(statistics.median(each), 1)} for name, each in found.items()}
    for name in ("fresh", "replay", "fresh_atomic", "passing"):
        side = "bare_unguarded" if name == "passing" else "bare"
        pairs = zip(found[name], found[side], strict=True)
        both = {name: sides[name], side: sides[side]}
        yield Figure(KINDS[f"B2_overhead_{name}"], [ours - bare for ours, bare in pairs], both)


async def _rounds(rounds: int, count: int) -> dict[str, list[float]]:
    clients = {
        "bare": Client(on_memory.bare, "POST", "/payments"),
        "fresh": Client(on_memory.guarded, "POST", "/payments"),
        "fresh_atomic": Client(on_memory.atomic, "POST", "/payments"),
        "replay": Client(on_memory.guarded, "POST", "/payments", replayed=True),
        "bare_unguarded": Client(on_memory.bare, "PUT", "/unguarded"),
        "passing": Client(on_memory.guarded, "PUT", "/unguarded"),
    }
    fresh = (f"fresh-{number}" for number in itertools.count())
    settled = [f"settled-{number}" for number in range(KEYS)]
    found: dict[str, list[float]] = {name: [] for name in clients}
    async with on_memory.guard, on_memory.atomic_guard:
        for number in range(rounds + 1):  # the first warms up
            await _settle(settled)  # the fresh ones may have made the process forget them
            for name, client in clients.items():
                keys = itertools.cycle(settled) if name == "replay" else fresh
                took = await client.time(keys, count)
                if number:
                    found[name].append(took)
    if wrong := {name: client.wrong for name, client in clients.items() if client.wrong}:
        raise RunError(f"wrong answers in the process: {wrong}")
    return found


async def _settle(keys: list[str]) -> None:
    client: Any = Client(on_memory.guarded, "POST", "/payments")
    for key in keys:
        await client.request(key)
