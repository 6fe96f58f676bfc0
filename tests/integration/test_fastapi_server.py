"""A FastAPI service under uvicorn, on PostgreSQL: races, streams and clients that leave.

Everything goes over real sockets, with sessions of SQLAlchemy.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import BackgroundTasks, Depends, FastAPI
from fastapi.responses import FileResponse, StreamingResponse
from fastapi.sse import EventSourceResponse
from sqlalchemy.ext.asyncio import AsyncSession

from fastapi_app import guarded_router, service
from orm import Payment, Shop, orm_shop
from semel.core.model import Mode

ALICE = {"authorization": "Bearer alice"}
HEAD = b"POST /payments HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer alice\r\n"


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Run a server on a free port, and stop it when all its requests have ended."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        config = uvicorn.Config(app, ws="none", log_level="critical", loop="asyncio")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        limits = httpx.Limits(max_connections=100)
        try:
            async with httpx.AsyncClient(
                base_url=address, headers=ALICE, limits=limits, timeout=20, trust_env=False
            ) as client:
                yield client
        finally:
            server.should_exit = True
            await task


@dataclass
class Running:
    """A service, its client, and what its endpoints did."""

    shop: Shop
    client: httpx.AsyncClient
    files: Path
    runs: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def pay(self, path: str, key: str = "k") -> httpx.Response:
        return await self.client.post(path, headers={"Idempotency-Key": key})


def application(running: Running) -> FastAPI:
    """Make the service; each of its endpoints does one payment."""
    api = guarded_router(running.shop.guard)

    async def db() -> AsyncIterator[AsyncSession]:
        async with running.shop.session() as opened:
            yield opened

    session: Any = Depends(db)

    async def effect(name: str, session: AsyncSession) -> None:
        running.runs.append(name)
        session.add(Payment(what=name))
        await session.commit()

    async def slow(tasks: BackgroundTasks, session: AsyncSession = session) -> str:
        await effect("slow", session)
        tasks.add_task(running.done.append, "slow")
        running.entered.set()
        await running.go_on.wait()
        return "paid"

    async def lines(session: AsyncSession = session) -> AsyncIterator[dict[str, int]]:
        await effect("lines", session)
        yield {"n": 1}
        running.entered.set()
        await running.go_on.wait()
        yield {"n": 2}

    async def file(session: AsyncSession = session) -> FileResponse:
        await effect("file", session)
        return FileResponse(running.files / "receipt", 201)

    async def long(session: AsyncSession = session) -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(5):
                yield b"x" * 300_000

        await effect("long", session)
        return StreamingResponse(pieces())

    api.post("/payments")(slow)
    api.post("/lines")(lines)
    api.post("/events", response_class=EventSourceResponse)(lines)
    api.post("/file")(file)
    api.post("/long")(long)
    return service(api)


@pytest.fixture(
    params=[("asyncpg", Mode.ATOMIC), ("psycopg", Mode.ATOMIC), ("asyncpg", Mode.JOINED)]
)
async def running(
    request: pytest.FixtureRequest, pg_database: str, tmp_path: Path
) -> AsyncIterator[Running]:
    driver, mode = request.param
    async with orm_shop(pg_database, driver, size=8, mode=mode) as shop:
        made = Running(shop, httpx.AsyncClient(), tmp_path)
        async with serving(application(made)) as client:
            made.client = client
            yield made


@pytest.mark.rule("A1", "W1")
async def test_fifty_at_once_run_one_endpoint(running: Running) -> None:
    running.go_on.set()
    answers = await asyncio.gather(*(running.pay("/payments") for _ in range(50)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {200, 409}
    fresh = [a for a in answers if a.status_code == 200 and "idempotent-replayed" not in a.headers]
    assert len(fresh) == 1
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["type"].endswith(":in-flight")
            assert answer.headers["retry-after"]
        else:
            assert answer.content == fresh[0].content
    assert (running.runs, running.done) == (["slow"], ["slow"])
    assert await running.shop.effects() == ["slow"]
    assert (await running.pay("/payments")).headers["idempotent-replayed"] == "true"


@pytest.mark.rule("A1", "O4")
async def test_while_the_first_runs_nobody_else_does(running: Running) -> None:
    first = asyncio.create_task(running.pay("/payments"))
    await running.entered.wait()
    others = await asyncio.gather(*(running.pay("/payments") for _ in range(10)))
    assert {answer.status_code for answer in others} == {409}
    assert (await running.shop.effects(), running.done) == ([], [])
    running.go_on.set()
    assert (await first).json() == "paid"
    assert await running.shop.effects() == ["slow"]


@pytest.mark.rule("O6", "R1")
async def test_a_file_over_http(running: Running) -> None:
    (running.files / "receipt").write_bytes(b"receipt")
    first, again = [await running.pay("/file") for _ in range(2)]
    assert (first.status_code, first.content) == (201, b"receipt")
    assert (again.status_code, again.content) == (201, b"receipt")
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["etag"] == first.headers["etag"]
    assert running.runs == ["file"]


@pytest.mark.rule("O7")
async def test_a_long_answer_flows_and_is_not_stored(running: Running) -> None:
    first = await running.pay("/long")
    assert (first.status_code, len(first.content)) == (200, 1_500_000)
    again = await running.pay("/long")
    assert again.json()["type"].endswith(":response-not-stored")
    assert (running.runs, await running.shop.effects()) == (["long"], ["long"])


@pytest.mark.rule("O7", "W2")
async def test_events_arrive_one_by_one(running: Running) -> None:
    """With the first one the effect is committed, although the stream goes on."""
    keyed = {"Idempotency-Key": "k"}
    async with running.client.stream("POST", "/events", headers=keyed) as answer:
        pieces = answer.aiter_bytes()
        assert b'"n":1' in await anext(pieces)
        assert await running.shop.effects() == ["lines"]
        assert (await running.pay("/events")).status_code == 409
        running.go_on.set()
        assert b'"n":2' in await anext(pieces)
    assert (await running.pay("/events")).json()["type"].endswith(":response-not-stored")
    assert running.runs == ["lines"]


@pytest.mark.rule("O5")
async def test_a_client_that_leaves_an_endpoint_finds_the_answer_later(running: Running) -> None:
    port = running.client.base_url.port
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD + b"Idempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
    await running.entered.wait()
    writer.close()
    await writer.wait_closed()
    running.go_on.set()
    while (answer := await running.pay("/payments")).status_code == 409:
        pass
    assert (answer.json(), answer.headers["idempotent-replayed"]) == ("paid", "true")
    assert (running.runs, running.done) == (["slow"], ["slow"])
    assert await running.shop.effects() == ["slow"]


@pytest.mark.rule("O5")
async def test_a_client_that_leaves_a_stream_never_finds_half_of_it(running: Running) -> None:
    port = running.client.base_url.port
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        HEAD.replace(b"/payments", b"/lines") + b"Idempotency-Key: k\r\nContent-Length: 0\r\n\r\n"
    )
    await running.entered.wait()
    writer.close()
    await writer.wait_closed()
    running.go_on.set()
    while (answer := await running.pay("/lines")).status_code == 409:
        pass
    assert answer.content == b'{"n":1}\n{"n":2}\n'
    assert await running.shop.effects() == ["lines"]
    replayed = "idempotent-replayed" in answer.headers
    assert running.runs == (["lines"] if replayed else ["lines", "lines"])
