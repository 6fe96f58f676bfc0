"""The reference service for tests: real processes, spoken to over real HTTP.

    with serving(url) as service:
        answer = service.pay("key-1")

The service chooses its own port. What it wrote to stderr is in `service.errors`,
which handlers have started in `service.handlers()`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

SEMEL = (sys.executable, "-m", "semel")
SECONDS = 30.0
PAYMENT = {"amount": 500, "currency": "RUB"}

ANNOUNCEMENT = re.compile(r"Semel reference service on (http://127\.0\.0\.1:(\d+))\n")


def semel(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `semel` to its end."""
    return subprocess.run(
        [*SEMEL, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS * 2,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )


class Served:
    """A running service, and a client for it."""

    def __init__(
        self, process: subprocess.Popen[str], url: str, errors: IO[bytes], log: Path
    ) -> None:
        self.process = process
        self.url = url
        self._errors = errors
        self._log = log
        self.http = httpx.Client(
            base_url=url,
            headers={"Authorization": "Bearer demo-1"},
            timeout=SECONDS,
            trust_env=False,
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return httpx.URL(self.url).port or 80

    @property
    def errors(self) -> str:
        """What it has written to stderr."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def pay(
        self, key: str, body: object = None, *, fault: str = "", bearer: str = "demo-1"
    ) -> httpx.Response:
        """Post a payment; bytes are sent as they are."""
        content = {"content": body} if isinstance(body, bytes) else {"json": body or PAYMENT}
        headers = {"Idempotency-Key": key, "Authorization": f"Bearer {bearer}"}
        if fault:
            headers["X-Semel-Test"] = fault
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
        return self.http.post("/payments", headers=headers, **content)

    def count(self) -> int:
        """Return how many payments there are."""
        return int(self.http.get("/payments?count=true").raise_for_status().json()["count"])

    def handlers(self) -> list[str]:
        """Return the digests of the keys whose handlers have started, in order."""
        return self._log.read_text("ascii").splitlines()

    def runs(self, key: str) -> int:
        """Return how many handlers have started under a key."""
        return self.handlers().count(digest(key))

    def holds(self) -> list[dict[str, Any]]:
        """Return which requests wait inside their handlers."""
        listed: list[dict[str, Any]] = (
            self.http.get("/test/holds").raise_for_status().json()["holds"]
        )
        return listed

    def until_held(self, name: str) -> int:
        """Wait until a request waits for this name; returns its process."""
        found = until(lambda: [hold for hold in self.holds() if hold["name"] == name])
        return int(found[0]["process"])

    def release(self, name: str) -> None:
        """Let a held request go on."""
        self.http.post(f"/test/holds/{name}/release").raise_for_status()

    def retry(self, key: str, body: object = None) -> httpx.Response:
        """Post until the answer is final, pausing as it asks for."""
        while True:
            answer = self.pay(key, body)
            if "Retry-After" not in answer.headers:
                return answer
            time.sleep(float(answer.headers["Retry-After"]))

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it; returns its exit code."""
        self.process.send_signal(how)
        return self.process.wait(SECONDS)


def until(look: Callable[[], T]) -> T:
    """Look again and again until there is something, and return that."""
    give_up = time.monotonic() + SECONDS
    while not (seen := look()):
        assert time.monotonic() < give_up, "it did not happen in time"
    return seen


@contextmanager
def serving(store: str, *options: str, faults: bool = True, port: int = 0) -> Iterator[Served]:
    """Run the service; its tables are made first."""
    fixed = ["--store", store, "--port", str(port), "--migrate", *(["--test-faults"] * faults)]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "handlers.log"
        process = subprocess.Popen(
            [*SEMEL, "serve", *fixed, "--handler-log", str(log), *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            # What a killed service leaves behind goes with this folder.
            env={**os.environ, "TMPDIR": folder},
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = ANNOUNCEMENT.fullmatch(line)
            errors.seek(0)
            assert found, f"{line!r}, {errors.read().decode()}"
            service = Served(process, found[1], errors, log)
            with service.http:
                yield service
        finally:
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Kill a service with all its workers, which share a session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(SECONDS)
    if process.stdout is not None:
        process.stdout.close()


def digest(key: str) -> str:
    """Return the short digest of a key, as logs have it."""
    return sha256(key.encode()).hexdigest()[:12]


def replayed(answer: httpx.Response) -> bool:
    """Say whether an answer is a replay."""
    return bool(answer.headers.get("Idempotent-Replayed") == "true")
