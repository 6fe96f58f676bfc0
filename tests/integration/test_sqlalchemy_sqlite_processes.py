"""SQLAlchemy on a file of SQLite that several processes share: one effect for each key.

Processes are killed between effect and commit, race for one key, and hold the
file's one write lock; effects are counted from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

import orm_worker
from orm import ON_FILE, PAID, Payment, Shop, orm_shop
from orm_worker import Settings
from semel.claim import AsyncClaim

SECONDS = 30.0


@pytest.fixture(params=ON_FILE)
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def shop(driver: str, tmp_path: Path) -> AsyncIterator[Shop]:
    async with orm_shop(str(tmp_path / "shop.db"), driver) as opened:
        yield opened


class Process:
    """A process that was started, and what it says."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen

    async def says(self) -> str:
        assert self.popen.stdout is not None
        line: str = await asyncio.wait_for(asyncio.to_thread(self.popen.stdout.readline), SECONDS)
        return line.strip()

    def go_on(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    async def rest(self) -> list[str]:
        """Wait for its end; return what it said meanwhile."""
        said, _ = await asyncio.to_thread(self.popen.communicate, timeout=SECONDS)
        assert self.popen.returncode == 0
        return said.split()

    def kill(self) -> None:
        os.kill(self.popen.pid, signal.SIGKILL)
        assert self.popen.wait(SECONDS) == -signal.SIGKILL


@contextmanager
def started(*command: str) -> Iterator[Process]:
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as popen:
        try:
            yield Process(popen)
        finally:
            popen.kill()


def worker(settings: Settings) -> list[str]:
    return [orm_worker.__file__, json.dumps(asdict(settings))]


async def to_be_had(shop: Shop, key: str) -> AsyncClaim[AsyncConnection]:
    """Ask for a claim again and again until its lease is over."""
    async with asyncio.timeout(SECONDS):
        while not isinstance(claim := await shop.acquire(key), AsyncClaim):
            await asyncio.sleep(0.01)
    return claim


@pytest.mark.rule("A2", "O4")
@pytest.mark.parametrize(("hold", "word"), [("effect", "wrote"), ("commit", "completed")])
async def test_kill_9_between_effect_and_commit(
    shop: Shop, driver: str, hold: str, word: str
) -> None:
    """The retry runs the handler once more, and there is one effect."""
    settings = Settings(shop.url, driver, "k", hold, lease=1.0)
    with started(*worker(settings)) as process:
        assert await process.says() == "ready"
        process.go_on()
        assert [await process.says(), await process.says()] == ["began", word]
        assert await shop.effects() == []
        process.kill()
    assert await shop.effects() == []

    claim = await to_be_had(shop, "k")
    assert claim.takeover
    async with shop.session() as session:
        session.add(Payment(what="k"))
        await session.commit()
    await claim.complete(PAID)
    assert await shop.effects() == ["k"]
    assert await shop.replays()


@pytest.mark.rule("A2", "A7")
async def test_kill_9_after_the_commit(shop: Shop, driver: str) -> None:
    """What was committed is replayed."""
    with started(*worker(Settings(shop.url, driver, "k"))) as process:
        await process.says()
        process.go_on()
        assert [await process.says(), await process.says()] == ["began", "executed"]
        process.kill()
    assert await shop.replays()
    assert await shop.effects() == ["k"]


async def raced(settings: list[Settings]) -> list[str]:
    """Start a process for each, let all go at once, and return all that they say."""
    with ExitStack() as stack:
        racers = [stack.enter_context(started(*worker(one))) for one in settings]
        for racer in racers:
            assert await racer.says() == "ready"
        for racer in racers:
            racer.go_on()
        return [word for racer in racers for word in await racer.rest()]


@pytest.mark.rule("A1", "A6")
async def test_a_race_of_processes(shop: Shop, driver: str) -> None:
    """Twenty requests with one key in four processes: one handler, one effect."""
    said = await raced([Settings(shop.url, driver, "k", tasks=5)] * 4)
    assert said.count("began") == 1
    assert said.count("executed") == 1
    assert set(said) <= {"began", "executed", "InFlight", "Replay"}
    assert len(said) == 21
    assert await shop.effects() == ["k"]


@pytest.mark.rule("A6", "A9")
@pytest.mark.parametrize("driver", ["aiosqlite"], indirect=True)
async def test_a_race_of_many_keys(shop: Shop, driver: str) -> None:
    """Four processes write at the same time, each under a key of its own: nobody fails."""
    said = await raced([Settings(shop.url, driver, f"k{n}", tasks=5) for n in range(4)])
    assert said.count("executed") == 4
    assert sorted(await shop.effects()) == ["k0", "k1", "k2", "k3"]


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@pytest.mark.rule("A6", "A2")
@pytest.mark.parametrize("end", ["rolls back", "is killed"])
async def test_a_handler_waits_for_another_process_that_writes(shop: Shop, end: str) -> None:
    claim = await shop.claim()
    with started("-c", HOLD, shop.url) as process:
        assert await process.says() == "locked"
        session = shop.session()
        session.add(Payment(what="a"))
        work = asyncio.create_task(session.commit())
        async with asyncio.timeout(SECONDS):
            while shop.engine.pool.checkedout() == 0:  # type: ignore[attr-defined]
                await asyncio.sleep(0.001)
        assert not work.done()
        if end == "is killed":
            process.kill()
        else:
            process.go_on()
        await work
    await session.close()
    await claim.complete(PAID)
    assert await shop.effects() == ["a"]
    assert await shop.replays()
