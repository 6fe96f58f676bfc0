"""The load: the same request over and over on some connections, in a process of its own.

    python -m bench.load

reads one order a line, as JSON, and answers each with one line:

    {"port": 8000, "path": "/payments", "caller": "side-0", "connections": 16,
     "seconds": 3.0, "keys": null}
    {"answers": 9210, "counted": 9194, "seconds": 3.0, "wrong": {}, "p50_ms": …, "p99_ms": …}

Without `keys` every request has a new one, else they are used in turn, and with
`seconds` null each of them once. Each connection sends its next request when the
answer to its last one is complete; `counted` are the answers within the time. What is
sent is made before the clock runs, and of an answer only status and length are looked
at, so that the load costs little, and the same on every side.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import uvloop

BODY = b'{"amount": 500, "currency": "RUB", "reference": "order 4711", "note": null}'
HEAD = (
    "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {caller}\r\n"
    "Content-Type: application/json\r\nContent-Length: {length}\r\nIdempotency-Key: "
)
EXPECTED = b"HTTP/1.1 201"
END = b"\r\n\r\n"
LENGTH = b"content-length: "
MOST = 15_000  # requests a second for which keys are made
LEAVE = 10.0  # seconds for the last answers to come
ONCE = 60.0  # seconds at most in which each key is used once


class Round:
    """What one order sends, and what comes back."""

    def __init__(self, path: str, caller: str, keys: Iterator[bytes]) -> None:
        """Prepare the request."""
        self.head = HEAD.format(path=path, caller=caller, length=len(BODY)).encode()
        self.tail = END + BODY
        self.keys = keys
        self.latencies: list[float] = []
        self.wrong: Counter[str] = Counter()

    def next(self) -> bytes | None:
        """Return the next request, `None` after the last one."""
        key = next(self.keys, None)
        return None if key is None else self.head + key + self.tail

    def stop(self) -> None:
        """Send no more."""
        self.keys = iter(())


class Caller(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, this: Round) -> None:
        """Wait for the connection."""
        self.round = this
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.finished = False
        self.sent = 0.0
        self.got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        # uvloop's is one in all but name.
        self.transport = cast("asyncio.Transport", transport)
        self.send()

    def send(self) -> None:
        """Send a request, or hang up when there are no more."""
        request = self.round.next()
        if request is None:
            self.finished = True
            self.transport.close()
        else:
            self.sent = time.perf_counter()
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Look whether the answer is complete."""
        data = self.got = self.got + data if self.got else data
        end = data.find(END)
        if end < 0:
            return
        head = data[: end + 2].lower()  # names in any case, the last line's end with it
        at = head.index(LENGTH) + len(LENGTH)
        if len(data) < end + len(END) + int(head[at : head.index(b"\r", at)]):
            return
        self.got = b""
        if not data.startswith(EXPECTED):
            self.round.wrong[data[:end].split(b"\r\n")[0].decode("latin-1")] += 1
        self.round.latencies.append(time.perf_counter() - self.sent)
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note whether that was our wish."""
        if not self.finished:
            self.round.wrong[f"connection lost: {exc}"] += 1
        self.done.set_result(None)


def keys_of(order: dict[str, Any]) -> Iterator[bytes]:
    """Return the keys of an order, made beforehand."""
    seconds = order["seconds"]
    if order["keys"] is None:
        return iter([str(uuid.uuid4()).encode() for _ in range(int(seconds * MOST))])
    given = [key.encode() for key in order["keys"]]
    return itertools.cycle(given) if seconds else iter(given)


async def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order."""
    seconds = order["seconds"]
    this = Round(order["path"], order["caller"], keys_of(order))
    loop = asyncio.get_running_loop()
    begin = time.perf_counter()
    callers = [
        (await loop.create_connection(lambda: Caller(this), "127.0.0.1", order["port"]))[1]
        for _ in range(order["connections"])
    ]
    everything = asyncio.gather(*(caller.done for caller in callers))
    await asyncio.wait([everything], timeout=seconds or ONCE)
    counted, took = len(this.latencies), time.perf_counter() - begin
    this.stop()
    await asyncio.wait_for(everything, LEAVE)
    cuts = statistics.quantiles(this.latencies, n=100) if counted > 1 else [0.0] * 99
    return {
        "answers": len(this.latencies),
        "counted": counted,
        "seconds": took,
        "wrong": this.wrong,
        "p50_ms": round(cuts[49] * 1e3, 2),
        "p99_ms": round(cuts[98] * 1e3, 2),
    }


def main() -> None:
    """Carry out orders until there are no more."""
    for line in sys.stdin:
        print(json.dumps(uvloop.run(carry_out(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
