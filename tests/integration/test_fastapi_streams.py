"""Streams, events, files and clients that leave, from a route of FastAPI's (O5, O6, O7).

In memory, message by message; test_fastapi_server.py has some of it over sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import (
    BackgroundTasks,
    Response,
)
from fastapi.responses import FileResponse, StreamingResponse
from fastapi.sse import EventSourceResponse

import semel
from asgi_driver import Conversation, call
from asgi_shop import ALICE, Shop
from fastapi_app import (
    DOWN,
    Payment,
    SoldOutError,
    one_route,
)
from semel.core.model import Mode
from semel.errors import ClaimClosedError


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


@pytest.mark.rule("O6", "R1")
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_generator_is_held_back_and_replayed(shop: Shop, blocking: bool) -> None:
    pieces: list[Any] = []

    async def pay(payment: Payment) -> AsyncIterator[dict[str, int]]:
        assert semel.current() is not None
        await shop.pay()
        for number in range(payment.amount):
            pieces.append(semel.current())
            yield {"n": number}

    def pay_blocking(payment: Payment) -> Iterator[dict[str, int]]:
        shop.runs += 1
        for number in range(payment.amount):
            pieces.append(semel.current())
            yield {"n": number}

    app = one_route(shop, pay_blocking if blocking else pay)
    for replayed in (False, True):
        reply = await call(app, key="k", headers=ALICE, body=b'{"amount": 2}')
        assert (reply.status, reply.body) == (200, b'{"n":0}\n{"n":1}\n')
        assert reply.replayed is replayed
    invalid = await call(app, key="k", headers=ALICE, body=b"{}")
    assert invalid.status == 422
    assert (shop.runs, len(pieces), None in pieces) == (1, 2, False)


@pytest.mark.rule("O7", "W2")
@pytest.mark.parametrize("blocking", [True, False])
async def test_events_begin_with_what_the_claim_protects(shop: Shop, blocking: bool) -> None:
    """What runs before the first event is settled with the claim; what runs after it is not."""
    seen: list[bool] = []

    async def pay() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        yield {"n": 1}
        claim = shop.guard.current()
        seen.append(claim.closed)
        with pytest.raises(ClaimClosedError):
            _ = claim.tx
        yield {"n": 2}

    def pay_blocking() -> Iterator[dict[str, int]]:
        shop.runs += 1
        claim = shop.guard.current()
        assert not claim.closed
        yield {"n": 1}
        seen.append(claim.closed)
        yield {"n": 2}

    app = one_route(shop, pay_blocking if blocking else pay, response_class=EventSourceResponse)
    first = await call(app, key="k", headers=ALICE)
    assert first.body == b'data: {"n":1}\n\ndata: {"n":2}\n\n'
    assert (await call(app, key="k", headers=ALICE)).problem == "response-not-stored"
    assert (shop.runs, seen, shop.effects) == (1, [True], 0 if blocking else 1)


@pytest.mark.rule("O7", "O2")
async def test_events_that_fail_before_the_first_give_the_key_back(shop: Shop) -> None:
    async def pay() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        if shop.runs == 1:
            raise SoldOutError
        yield {"n": shop.runs}

    app = one_route(shop, pay, response_class=EventSourceResponse)
    talk = Conversation(app, key="k", headers=ALICE)
    with pytest.raises(ExceptionGroup):
        await talk.run()
    assert (talk.reply.status, shop.untouched) == (500, True)
    assert (await call(app, key="k", headers=ALICE)).body == b'data: {"n":2}\n\n'


async def misstated() -> AsyncIterator[Payment]:
    """Yield what it does not declare; a function of the module's, for its annotation."""
    semel.current().tx  # type: ignore[union-attr] # noqa: B018 - in the test
    yield {"amount": "much"}  # type: ignore[misc] # on purpose


@pytest.mark.rule("O7", "O2")
async def test_a_first_event_that_is_invalid_gives_the_key_back(shop: Shop) -> None:
    app = one_route(shop, misstated, response_class=EventSourceResponse)
    talk = Conversation(app, key="k", headers=ALICE)
    with pytest.raises(ExceptionGroup):
        await talk.run()
    assert (talk.reply.status, shop.untouched) == (500, True)


@pytest.mark.rule("O7")
async def test_events_without_any(shop: Shop) -> None:
    async def pay() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        return
        yield {}

    app = one_route(shop, pay, response_class=EventSourceResponse)
    reply = await call(app, key="k", headers=ALICE)
    assert (reply.status, reply.body, reply.complete, shop.effects) == (200, b"", True, 1)


@pytest.mark.rule("O7")
async def test_events_of_an_endpoint_that_settles_by_its_own_hand(shop: Shop) -> None:
    async def pay() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        await shop.guard.current().complete(semel.Answer(200, (), None))
        yield {"n": 1}
        yield {"n": 2}

    app = one_route(shop, pay, response_class=EventSourceResponse)
    assert (await call(app, key="k", headers=ALICE)).body.count(b"data:") == 2
    assert (await call(app, key="k", headers=ALICE)).problem == "response-not-stored"


@pytest.mark.rule("O7")
async def test_an_event_arrives_before_the_next_one_is_made(shop: Shop) -> None:
    arrived = asyncio.Event()

    async def pay() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        yield {"n": 1}
        await arrived.wait()
        yield {"n": 2}

    app = one_route(shop, pay, response_class=EventSourceResponse)
    talk = Conversation(app, key="k", headers=ALICE)
    task = talk.start()
    await talk.until(lambda reply: b'"n":1' in reply.body)
    assert shop.effects == 1
    arrived.set()
    assert (await task).complete


@pytest.mark.rule("O7")
async def test_events_of_a_streaming_response(shop: Shop) -> None:
    async def lines() -> AsyncIterator[bytes]:
        with pytest.raises(ClaimClosedError):
            _ = shop.guard.current().tx
        yield b"data: 1\n\n"

    async def pay() -> Response:
        await shop.pay()
        return StreamingResponse(lines(), media_type="text/event-stream")

    app = one_route(shop, pay)
    assert (await call(app, key="k", headers=ALICE)).body == b"data: 1\n\n"
    assert (await call(app, key="k", headers=ALICE)).problem == "response-not-stored"
    assert shop.effects == 1


@pytest.mark.rule("O7")
async def test_a_generator_for_a_response_class_that_streams_events_by_itself(shop: Shop) -> None:
    class Events(StreamingResponse):
        media_type = "text/event-stream"

    async def pay() -> AsyncIterator[bytes]:
        shop.runs += 1
        yield b"data: 1\n\n"

    app = one_route(shop, pay, response_class=Events)
    assert (await call(app, key="k", headers=ALICE)).body == b"data: 1\n\n"
    assert (await call(app, key="k", headers=ALICE)).problem == "response-not-stored"
    assert shop.runs == 1


@pytest.mark.rule("O7")
async def test_a_long_stream_is_settled_on_the_way(shop: Shop) -> None:
    async def lines() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 400_000

    async def pay() -> Response:
        await shop.pay()
        return StreamingResponse(lines())

    app = one_route(shop, pay)
    reply = await call(app, key="k", headers=ALICE)
    assert (len(reply.body), shop.effects) == (1_200_000, 1)
    assert (await call(app, key="k", headers=ALICE)).problem == "response-not-stored"


@pytest.mark.rule("O6", "R1")
@pytest.mark.parametrize(("size", "problem"), [(100, ""), (1_100_000, "response-not-stored")])
async def test_a_file(shop: Shop, tmp_path: Path, size: int, problem: str) -> None:
    path = tmp_path / "receipt.pdf"
    path.write_bytes(b"x" * size)

    async def pay() -> FileResponse:
        await shop.pay()
        return FileResponse(path, 201, filename="receipt.pdf")

    app = one_route(shop, pay)
    first = await call(app, key="k", headers=ALICE)
    assert (first.status, len(first.body), shop.effects) == (201, size, 1)
    again = await call(app, key="k", headers=ALICE)
    assert again.problem == problem
    if not problem:
        kept = ("content-type", "content-disposition", "etag", "last-modified", "content-length")
        assert [again.get(name) for name in kept] == [first.get(name) for name in kept]
    assert shop.runs == 1


@pytest.mark.rule("O6")
async def test_an_answer_without_content(shop: Shop) -> None:
    app = one_route(shop, shop.pay, status_code=204)
    for replayed in (False, True):
        reply = await call(app, key="k", headers=ALICE)
        assert (reply.status, reply.body, reply.replayed) == (204, b"", replayed)


@pytest.mark.rule("O5", "O6")
@pytest.mark.parametrize("failing", [True, False])
async def test_a_client_that_leaves_in_the_middle_of_a_stream(shop: Shop, failing: bool) -> None:
    left = asyncio.Event()

    async def lines() -> AsyncIterator[dict[str, int]]:
        await shop.pay()
        yield {"n": 1}
        talk.left.set()
        left.set()
        await asyncio.sleep(0)
        yield {"n": 2}

    app = one_route(shop, lines)
    talk = Conversation(app, key="k", headers=ALICE, failing=failing)
    await talk.run()
    assert left.is_set()
    again = await call(app, key="k", headers=ALICE)
    assert again.body == b'{"n":1}\n{"n":2}\n'
    # Cut, the first was rolled back; whole, it is replayed: never half of it.
    assert shop.effects == 1
    assert shop.runs == (1 if again.replayed else 2)


@pytest.mark.rule("O4", "O7")
@pytest.mark.parametrize("kind", ["lines", "events", "streaming", "file"])
@pytest.mark.parametrize("version", ["2.3", "2.4"])
async def test_what_streams_is_503_too_where_the_commit_fails(
    shop: Shop, kind: str, version: str, tmp_path: Path
) -> None:
    """Starlette takes an OSError out of `send` for a client that left, and would run the tasks."""
    done: list[int] = []
    reached: list[int] = []
    path = tmp_path / "file"
    path.write_bytes(b"x")

    async def pieces() -> AsyncIterator[bytes]:
        yield b"1"

    async def lines(tasks: BackgroundTasks) -> AsyncIterator[int]:
        await begin(tasks)
        yield 1
        reached.append(1)
        yield 2

    async def begin(tasks: BackgroundTasks) -> None:
        await shop.pay()
        tasks.add_task(done.append, 1)
        shop.trouble["claim_complete"] = DOWN

    async def streaming(tasks: BackgroundTasks) -> Response:
        await begin(tasks)
        return StreamingResponse(pieces()) if kind == "streaming" else FileResponse(path)

    classes = {"events": {"response_class": EventSourceResponse}}
    endpoint = lines if kind in {"lines", "events"} else streaming
    app = one_route(shop, endpoint, **classes.get(kind, {}))
    modern = {"asgi": {"version": "3.0", "spec_version": version}}
    reply = await call(app, key="k", headers=ALICE, scope=modern)
    assert (reply.status, reply.problem, reply.complete) == (503, "store-unavailable", True)
    assert (done, shop.effects) == ([], 0)
    assert reached == ([1] if kind == "lines" else [])
