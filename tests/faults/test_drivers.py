"""The same faults on every driver of PostgreSQL: real processes, a server of the test's own.

Who loses a race is told so; a killed process or a database that crashes leaves one
effect or none. The log of the application (`driver_app`) says where each fault struck
and how often handlers ran; effects are counted from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import httpx
import psycopg
import pytest

from faults import driver_app
from faults.driver_app import (
    DRIVERS,
    MODES,
    SECONDS,
    Settings,
    noted,
    prepare,
    until,
    until_held,
)
from semel import SHARED
from semel.core.identity import identify
from semel.core.model import Mode
from servers import OwnPostgres
from serving import end, replayed

RACERS = 50


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with OwnPostgres() as running:
        asyncio.run(prepare(running.url))
        yield running


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    chosen: Mode = request.param
    return chosen


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "events"
    path.touch()
    return path


class Service:
    """A process of the application, and a client for it."""

    def __init__(
        self, process: subprocess.Popen[str], http: httpx.AsyncClient, errors: IO[bytes]
    ) -> None:
        self.process = process
        self.http = http
        self._errors = errors

    @property
    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()

    async def pay(self, mode: Mode, key: str, fault: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": key, "X-Fault": fault}
        return await self.http.post(f"/{mode}/pay", json={"amount": 500}, headers=headers)

    def start(self, mode: Mode, key: str, fault: str) -> asyncio.Task[httpx.Response]:
        return asyncio.create_task(self.pay(mode, key, fault))

    async def let_go(self, key: str) -> None:
        (await self.http.put(f"/gates/{key}")).raise_for_status()


@asynccontextmanager
async def running(settings: Settings, count: int = 1) -> AsyncIterator[list[Service]]:
    """Run so many processes of the application."""
    with tempfile.TemporaryFile() as errors:
        async with AsyncExitStack() as stack:
            processes = [start(settings, errors) for _ in range(count)]
            for process in processes:
                stack.callback(end, process)
            yield [await stack.enter_async_context(found(one, errors)) for one in processes]


@asynccontextmanager
async def found(process: subprocess.Popen[str], errors: IO[bytes]) -> AsyncIterator[Service]:
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    errors.seek(0)
    assert port, errors.read().decode()
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        timeout=SECONDS,
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
    ) as http:
        yield Service(process, http, errors)


def start(settings: Settings, errors: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, driver_app.__file__, json.dumps(asdict(settings))],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
    )


async def query(server: OwnPostgres, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(server.url, autocommit=True) as outside:
        return await (await outside.execute(sql.encode(), values)).fetchall()


async def effects(server: OwnPostgres, key: str) -> int:
    rows = await query(server, "SELECT count(*) FROM effect WHERE what = %s", key)
    return int(rows[0][0])


async def retried(service: Service, mode: Mode, key: str) -> httpx.Response:
    """Return the first answer that is final."""

    async def look() -> httpx.Response | None:
        answer = await service.pay(mode, key)
        assert answer.status_code in {201, 409, 503}, answer.text
        return None if "Retry-After" in answer.headers else answer

    return await until(look)


async def paid_once(service: Service, server: OwnPostgres, mode: Mode, key: str) -> None:
    """Retry as a client would, twice: one effect and one answer; nothing is left open."""
    first = await retried(service, mode, key)
    again = await service.pay(mode, key)
    assert (first.status_code, again.status_code, replayed(again)) == (201, 201, True)
    assert again.content == first.content
    assert await effects(server, key) == 1
    digest = identify(SHARED, key).key
    assert await query(server, "SELECT status FROM semel_claim WHERE key = %s", digest) == [(1,)]

    async def nothing_open() -> bool:
        return not await query(
            server,
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND state ~ '^idle in transaction'",
        )

    await until(nothing_open)


@pytest.mark.rule("A1", "A6")
async def test_a_race(server: OwnPostgres, driver: str, mode: Mode, log: Path) -> None:
    """Fifty at once with one key, at one process and then at two of them."""
    async with running(Settings(driver, server.url, str(log)), 2) as services:
        await race_while_the_winner_waits(server, services[:1], mode, log)
        await race_of_all(server, services, mode, log)
        assert "could not be settled" not in services[0].errors


def line_up(
    services: list[Service], mode: Mode, key: str, fault: str = ""
) -> list[asyncio.Task[httpx.Response]]:
    return [services[n % len(services)].start(mode, key, fault) for n in range(RACERS)]


async def race_while_the_winner_waits(
    server: OwnPostgres, services: list[Service], mode: Mode, log: Path
) -> None:
    """All losers are answered while the winner is inside its handler."""
    key = uuid.uuid4().hex
    racers = line_up(services, mode, key, "hold")
    finishing = asyncio.as_completed(racers)
    losers = [await next(finishing) for _ in range(RACERS - 1)]
    assert noted(log, key) == ["began", "wrote", "held"]
    assert [loser.status_code for loser in losers] == [409] * (RACERS - 1)
    assert {loser.json()["type"] for loser in losers} == {"urn:semel:problem:in-flight"}
    assert await effects(server, key) == 0
    for service in services:
        await service.let_go(key)
    statuses = [answer.status_code for answer in await asyncio.gather(*racers)]
    assert sorted(statuses) == [201] + [409] * (RACERS - 1)
    await paid_once(services[0], server, mode, key)
    assert noted(log, key) == ["began", "wrote", "held", "settled", "worked"]


async def race_of_all(server: OwnPostgres, services: list[Service], mode: Mode, log: Path) -> None:
    """Nobody waits: who comes late gets the replay."""
    key = uuid.uuid4().hex
    answers = await asyncio.gather(*line_up(services, mode, key))
    assert {answer.status_code for answer in answers} <= {201, 409}
    paid = [answer for answer in answers if answer.status_code == 201]
    assert [replayed(answer) for answer in paid].count(False) == 1
    assert len({answer.content for answer in paid}) == 1
    await paid_once(services[-1], server, mode, key)
    assert noted(log, key) == ["began", "wrote", "settled", "worked"]


async def kill_when_held(settings: Settings, mode: Mode, key: str, fault: str) -> None:
    """Kill a process while its handler waits after the effect."""
    log = Path(settings.log)
    async with running(settings) as (service,):
        request = service.start(mode, key, fault)
        await until_held(log, key)
        os.kill(service.process.pid, signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            await request
        assert service.process.wait(SECONDS) == -signal.SIGKILL
    assert noted(log, key) == ["began", "wrote", "held"]


@pytest.mark.rule("A2", "O4")
async def test_kill_9_between_effect_and_commit(
    server: OwnPostgres, driver: str, mode: Mode, log: Path, key: str
) -> None:
    settings = Settings(driver, server.url, str(log), lease=1.0)
    await kill_when_held(settings, mode, key, "hold")
    assert await effects(server, key) == 0
    async with running(settings) as (service,):
        await paid_once(service, server, mode, key)
    assert noted(log, key)[3:] == ["began", "wrote", "settled", "worked"]


@pytest.mark.rule("A5", "W2")
async def test_kill_9_after_a_commit_as_text(
    server: OwnPostgres, driver: str, log: Path, key: str
) -> None:
    """The effect is there and no answer: in atomic mode the row itself tells."""
    settings = Settings(driver, server.url, str(log))
    await kill_when_held(settings, Mode.ATOMIC, key, "commit hold")
    assert await effects(server, key) == 1
    async with running(settings) as (service,):
        for _ in range(2):
            again = await retried(service, Mode.ATOMIC, key)
            assert again.status_code == 409
            assert again.json()["type"] == "urn:semel:problem:outcome-unknown"
    assert noted(log, key).count("began") == 1
    assert await effects(server, key) == 1


@pytest.mark.rule("A6", "O4", "O8")
async def test_a_crash_of_the_database_under_a_handler(
    server: OwnPostgres, driver: str, mode: Mode, log: Path, key: str
) -> None:
    async with running(Settings(driver, server.url, str(log), patience=0.5)) as (service,):
        request = service.start(mode, key, "hold")
        await until_held(log, key)
        server.stop("immediate")
        refused = await service.pay(mode, f"{key}-2")
        server.start()
        await service.let_go(key)
        for answer in (refused, await request):
            assert answer.status_code == 503
            assert answer.json()["type"] == "urn:semel:problem:store-unavailable"
            assert "Retry-After" in answer.headers
        assert await effects(server, key) == 0
        await paid_once(service, server, mode, key)
        assert noted(log, key).count("began") == 2
        assert noted(log, key).count("settled") == 1
        assert "could not be settled" not in service.errors


@pytest.mark.rule("A6", "O8")
async def test_a_crash_of_the_database_between_requests(
    server: OwnPostgres, driver: str, log: Path, key: str
) -> None:
    """The pool is full of dead connections, more of them than an acquire has tries."""
    settings = Settings(driver, server.url, str(log))
    async with running(settings) as (service,):
        crowd = [f"{key}-{number}" for number in range(settings.size)]
        requests = [service.start(Mode.ATOMIC, one, "hold") for one in crowd]
        await until_held(log, *crowd)
        for one in crowd:
            await service.let_go(one)
        assert {answer.status_code for answer in await asyncio.gather(*requests)} == {201}
        server.restart_immediate()
        for mode in MODES:
            await paid_once(service, server, mode, f"{key}-{mode}")
            assert noted(log, f"{key}-{mode}").count("began") == 1
