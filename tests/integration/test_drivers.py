"""The same faults on every driver of PostgreSQL: struck inside one process, at chosen moments.

Where a request is to be stopped, a transaction of the test's own stands in its way in
the database. Afterwards there is an effect with its stored answer or neither of them,
and the pool still has all of its connections.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

import semel.asyncpg.wire
import semel.psycopg.wire
from asgi_driver import Conversation, Reply
from faults.driver_app import (
    DRIVERS,
    MODES,
    SECONDS,
    PaymentApp,
    Settings,
    noted,
    opened,
    prepare,
    until,
    until_held,
)
from semel.core.model import Mode
from semel.store.statement import Rows, Statement
from servers import fresh_database

SIZE = 2
# Seconds until a refusal for want of a connection: more than the pool's own few.
PATIENCE = 10.0
# Seconds for what waits for nobody.
PROMPT = 3.0


WAITS = "wait_event_type = 'Lock'"
IN_THE_WAY = {
    "claim": "LOCK TABLE semel_claim",
    "effect": "LOCK TABLE effect IN SHARE MODE",
    "commit": "INSERT INTO effect (what, late) VALUES ('rival', %(key)s)",
}


@pytest.fixture(scope="module")
def database(postgres_server: str) -> Iterator[str]:
    with fresh_database(postgres_server) as url:
        asyncio.run(prepare(url))
        yield url


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    return Mode(request.param)


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


@pytest.fixture(params=DRIVERS)
def settings(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Settings:
    log = tmp_path / "events"
    log.touch()
    return Settings(request.param, database, str(log), size=SIZE)


@pytest.fixture
async def shop(settings: Settings, mode: Mode) -> AsyncIterator[Shop]:
    async with opened(settings) as app:
        yield Shop(app, settings, mode)


@dataclass
class Shop:
    """The application in one mode, and its database as seen from outside."""

    app: PaymentApp
    settings: Settings
    mode: Mode

    def talk(self, key: str, fault: str = "") -> Conversation:
        headers = {"x-fault": fault}
        return Conversation(self.app.asgi, "POST", f"/{self.mode}/pay", key=key, headers=headers)

    async def pay(self, key: str, fault: str = "") -> Reply:
        async with asyncio.timeout(SECONDS):
            return await self.talk(key, fault).run()

    def noted(self, key: str) -> list[str]:
        return noted(Path(self.settings.log), key)

    async def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(
            self.settings.url, autocommit=True
        ) as outside:
            return await (await outside.execute(sql.encode(), values)).fetchall()

    async def effects(self, key: str) -> int:
        rows = await self.query("SELECT count(*) FROM effect WHERE what = %s", key)
        return int(rows[0][0])

    async def until_held(self, *keys: str) -> None:
        await until_held(Path(self.settings.log), *keys)

    async def backend(self, condition: str) -> int:
        """Return the one backend that fulfils a condition, once there is one."""

        async def look() -> list[tuple[Any, ...]]:
            return await self.query(
                "SELECT pid FROM pg_stat_activity"
                f" WHERE datname = current_database() AND {condition}"
            )

        ((pid,),) = await until(look)
        return int(pid)

    async def terminate(self, backend: int) -> None:
        async def ended() -> bool:
            return not await self.query("SELECT 1 FROM pg_stat_activity WHERE pid = %s", backend)

        assert await self.query("SELECT pg_terminate_backend(%s)", backend) == [(True,)]
        await until(ended)

    async def is_sound(self) -> None:
        """No connection is missing from the pool, or left in a transaction."""

        async def nothing_open() -> bool:
            return not await self.query(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND state <> 'idle'"
                " AND (state ~ 'transaction' OR wait_event_type = 'Lock')"
            )

        await until(nothing_open)
        keys = [uuid.uuid4().hex for _ in range(self.settings.size)]
        async with asyncio.timeout(SECONDS):
            requests = [self.talk(key, "hold").start() for key in keys]
            await self.until_held(*keys)
            for key in keys:
                self.app.gates[key].set()
            replies = await asyncio.gather(*requests)
        assert [reply.status for reply in replies] == [201] * len(keys)

    async def is_paid_once(self, key: str, *, replayed: bool) -> None:
        """A retry gets the one answer; whether that was stored before is for the test to say."""
        assert await self.effects(key) == replayed
        reply, again = await self.pay(key), await self.pay(key)
        assert (reply.status, reply.replayed) == (201, replayed), reply.body
        assert (again.status, again.replayed, again.body) == (201, True, reply.body)
        assert await self.effects(key) == 1
        assert self.noted(key).count("settled") == 1
        # A task that is cancelled may be so before its framework's own work.
        assert self.noted(key).count("worked") in ({0, 1} if replayed else {1})
        await self.is_sound()


@dataclass
class Stalled:
    """A request that waits at a stage; `task` ends after the test has let it go."""

    talk: Conversation
    task: asyncio.Task[Reply]
    backend: int


@asynccontextmanager
async def stalled(shop: Shop, stage: str, key: str) -> AsyncIterator[Stalled]:
    """Send a request and let it come as far as a stage, where it waits until the end."""
    talk = shop.talk(key, "late hold" if stage == "handler" else "late")
    async with await psycopg.AsyncConnection.connect(shop.settings.url) as rival:
        if stage != "handler":
            await rival.execute(IN_THE_WAY[stage].encode(), {"key": key})
        task = talk.start()
        try:
            if stage == "handler":
                await shop.until_held(key)
            waits = "state = 'idle in transaction'" if stage == "handler" else WAITS
            yield Stalled(talk, task, await shop.backend(waits))
            shop.app.gates[key].set()
            await rival.rollback()
            await asyncio.wait([task], timeout=SECONDS)
            assert task.done()
        finally:
            task.cancel()


def refused(reply: Reply) -> bool:
    """Say whether an answer asks to come back, because nothing was done."""
    assert reply.get("retry-after") is not None
    return (reply.status, reply.problem) == (503, "store-unavailable")


@pytest.mark.rule("O4", "A6")
async def test_a_commit_that_the_database_refuses(shop: Shop, key: str) -> None:
    assert refused(await shop.pay(key, "twice"))
    assert shop.noted(key) == ["began", "wrote"]
    await shop.is_paid_once(key, replayed=False)


@pytest.mark.rule("O4", "A6")
@pytest.mark.parametrize("stage", ["handler", "commit"])
async def test_a_backend_that_is_terminated(shop: Shop, key: str, stage: str) -> None:
    """After the handler's last statement, and while the commit is under way."""
    async with stalled(shop, stage, key) as request:
        await shop.terminate(request.backend)
    assert refused(await request.task)
    assert not {"settled", "worked"} & {*shop.noted(key)}
    await shop.is_paid_once(key, replayed=False)


@pytest.mark.rule("O5", "O6")
@pytest.mark.parametrize("stage", ["claim", "effect", "handler", "commit"])
async def test_a_task_that_is_cancelled(shop: Shop, key: str, stage: str) -> None:
    async with stalled(shop, stage, key) as request:
        request.task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await request.task
    await shop.is_paid_once(key, replayed=stage == "commit")


@pytest.mark.rule("O5", "O6")
async def test_a_task_that_is_cancelled_while_it_waits_for_the_pool(shop: Shop, key: str) -> None:
    """Nothing was sent for it, so that nothing is to be taken back."""
    others = [uuid.uuid4().hex for _ in range(SIZE)]
    holding = [shop.talk(other, "hold").start() for other in others]
    await shop.until_held(*others)
    waiting = shop.talk(key).start()
    for _ in range(20):  # turns of the loop: there is nothing to see of it
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting], timeout=PROMPT)
    was_prompt = waiting.done()
    for other in others:
        shop.app.gates[other].set()
    assert [reply.status for reply in await asyncio.gather(*holding)] == [201] * SIZE
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await shop.is_paid_once(key, replayed=False)
    assert was_prompt


@pytest.mark.rule("O5", "O6")
async def test_a_task_that_is_cancelled_in_any_statement(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of Semel's own, when it has been sent and is not answered."""
    watch = Watch(monkeypatch)
    await shop.pay(uuid.uuid4().hex)
    names = watch.names.copy()
    assert names[-1] == "commit"
    for number, name in enumerate(names):
        key = uuid.uuid4().hex
        task = asyncio.create_task(shop.pay(key))
        watch.strike(task, number)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert watch.names[number] == name
        await shop.is_paid_once(key, replayed="wrote" in shop.noted(key))


class Watch:
    """Sees Semel's statements, and cancels a task at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self._strike: Callable[[], object] = lambda: None
        self._number = -1
        for wire in (semel.psycopg.wire.Wire, semel.asyncpg.wire.Wire):
            monkeypatch.setattr(wire, "run", self._watched(wire.run))

    def strike(self, task: asyncio.Task[Any], number: int) -> None:
        """Forget the statements seen so far, and cancel a task at the one of this number."""
        self.names.clear()
        self._strike, self._number = task.cancel, number

    def _watched(self, original: Callable[[Any, Statement], Awaitable[Rows]]) -> Any:
        async def run(wire: Any, statement: Statement) -> Rows:
            self.names.append(statement.name)
            if len(self.names) == self._number + 1:
                self._strike()  # arrives where the driver waits for the answer
            return await original(wire, statement)

        return run


@pytest.mark.rule("O5")
@pytest.mark.parametrize("stage", ["claim", "effect", "handler", "commit"])
async def test_a_client_that_leaves(shop: Shop, key: str, stage: str) -> None:
    """The server does not cancel for it, and the retry gets the answer."""
    async with stalled(shop, stage, key) as request:
        request.talk.left.set()
    assert (await request.task).status == 0
    await shop.is_paid_once(key, replayed=True)


@pytest.mark.rule("W2", "A5")
@pytest.mark.parametrize(
    "ends", ["commit", "commit begin", "commit begin fail", "commit begin swallow"]
)
async def test_a_commit_as_text(shop: Shop, key: str, ends: str) -> None:
    """Even where a new transaction was begun and has failed, and can not be asked."""
    talk = shop.talk(key, ends)
    with suppress(Exception):  # raised by the handler, after a 500
        await talk.run()
    assert talk.reply.status == 500 or talk.reply.problem == "outcome-unknown"
    for _ in range(2):
        reply = await shop.pay(key)
        assert (reply.status, reply.problem) == (409, "outcome-unknown")
    assert shop.noted(key) in (["began"], ["began", "wrote"])
    assert await shop.effects(key) == 1
    await shop.is_sound()


@pytest.mark.rule("O2", "W2")
@pytest.mark.parametrize("fault", ["swallow", "swallow close"])
async def test_an_error_that_the_handler_swallows(shop: Shop, key: str, fault: str) -> None:
    """It answers 201 although the database, or the session, has rolled back."""
    if fault == "swallow close" and "sqlalchemy" in shop.settings.driver:
        # To close a session is to roll it back, knowingly: nobody can tell the handler
        # that overlooks an error from the one that deals with it.
        assert [(await shop.pay(key, fault)).status for _ in range(2)] == [201, 201]
        assert await shop.effects(key) == 0
        await shop.is_sound()
        return
    assert refused(await shop.pay(key, fault))
    assert not {"settled", "worked"} & {*shop.noted(key)}
    await shop.is_paid_once(key, replayed=False)


@pytest.mark.rule("A6", "O8")
async def test_a_pool_that_is_exhausted(settings: Settings, mode: Mode) -> None:
    """Whoever gets no connection in the pool's time is refused, whatever its key."""
    async with opened(replace(settings, patience=0.2)) as app:
        shop = Shop(app, settings, mode)
        held = [uuid.uuid4().hex for _ in range(SIZE)]
        holding = [shop.talk(key, "hold").start() for key in held]
        await shop.until_held(*held)
        others = [uuid.uuid4().hex for _ in range(4)]
        async with asyncio.timeout(PATIENCE):
            replies = await asyncio.gather(*(shop.pay(key) for key in (*held, *others)))
        assert all(map(refused, replies))
        assert [shop.noted(key) for key in others] == [[]] * len(others)
        for key in held:
            app.gates[key].set()
        assert [reply.status for reply in await asyncio.gather(*holding)] == [201] * SIZE
        for key in (*held, *others):
            await shop.is_paid_once(key, replayed=key in held)


@pytest.mark.rule("A6", "O4")
async def test_a_crowd_on_one_connection(settings: Settings, mode: Mode, key: str) -> None:
    """More requests than connections, some of which look again after their commit failed."""
    settings = replace(settings, size=1)
    async with opened(settings) as app:
        shop = Shop(app, settings, mode)
        good, bad = ([uuid.uuid4().hex for _ in range(8)] for _ in range(2))
        pays = [
            *(shop.pay(one) for one in good),
            *(shop.pay(one, "twice") for one in bad),
            *(shop.pay(key) for _ in range(8)),
        ]
        replies = await asyncio.gather(*pays)
        assert {reply.status for reply in replies[:8]} == {201}
        assert all(map(refused, replies[8:16]))
        assert {reply.status for reply in replies[16:]} <= {201, 409}
        for one in (*good, *bad, key):
            await shop.is_paid_once(one, replayed=one not in bad)
