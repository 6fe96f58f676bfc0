"""B8: the fingerprint of a JSON body against one that loses numbers and duplicates."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.clock import times
from bench.figures import KINDS, Figure
from bench.run import Run
from semel.core.fingerprint import Fingerprinter, RequestImage

SIZE = 2000  # bytes of a body, about
ROUNDS, SECONDS = 15, 0.2
TRIAL = 3, 0.05
MICRO = 1e6

LINE: Mapping[str, Any] = {
    "sku": "A-1093-bl",
    "title": "Чайник «Утро», 1,7 л",
    "quantity": 2,
    "price": "1290.00",
    "discount": 0.15,
    "gift": False,
    "note": None,
}
SENTENCE = "Please leave the parcel with the neighbours, at no. 17. "


def measure_all(run: Run) -> Iterator[Figure]:
    """Measure the three bodies, and the raw digest on the first."""
    run.say("B8")
    rounds, seconds = (ROUNDS, SECONDS) if run.is_full else TRIAL
    for suffix, body in bodies().items():
        found = times(_functions(body), rounds, seconds)
        micro = {name: [each * MICRO for each in values] for name, values in found.items()}
        sides = {name: {"us": round(statistics.median(each), 2)} for name, each in micro.items()}
        sides["body"] = {"bytes": len(body)}
        pairs = zip(micro["fingerprint"], micro["lossy"], strict=True)
        yield Figure(KINDS[f"B8_fingerprint_ratio{suffix}"], [a / b for a, b in pairs], sides)
        if not suffix:
            yield Figure(KINDS["B8_raw_digest"], micro["raw"], sides)


def _functions(body: bytes) -> dict[str, Callable[[], object]]:
    image = image_of(body)
    ours = Fingerprinter()
    stored = ours.recipe_text, ours.of(image).digest, ours.of(image).raw
    return {
        "fingerprint": lambda: ours.of(image).digest,
        "lossy": lambda: lossy(body),
        "raw": lambda: ours.of(image).matches(*stored),
    }


def lossy(body: bytes) -> bytes:
    """Take the usual fingerprint: floats, last of duplicate names."""
    return hashlib.sha256(json.dumps(json.loads(body), sort_keys=True).encode()).digest()


def image_of(body: bytes) -> RequestImage:
    """Return a request with that body, and the headers of a usual client."""
    headers = (
        (b"host", b"shop.example"),
        (b"accept", b"*/*"),
        (b"user-agent", b"python-httpx/0.28.1"),
        (b"authorization", b"Bearer bench"),
        (b"content-type", b"application/json"),
        (b"idempotency-key", b"0192f7a0-0000-7000-8000-000000000000"),
    )
    return RequestImage("POST", "/orders", b"", headers, body)


def bodies() -> dict[str, bytes]:
    """Return bodies of about `SIZE` bytes, by the suffix of the figure."""
    return {
        "": _grown(lambda count: {"currency": "RUB", "lines": [LINE] * count}),
        "_text": _grown(lambda count: {"note": SENTENCE * count}),
        "_numbers": _grown(lambda count: {"points": [[55.75 + n, n * 7] for n in range(count)]}),
    }


def _grown(make: Any) -> bytes:  # noqa: ANN401 - any JSON value for a number
    count = 1
    while len(found := json.dumps(make(count), ensure_ascii=False).encode()) < SIZE:
        count += 1
    return found
