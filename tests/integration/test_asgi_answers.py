"""What is stored of an answer, when it is sent, and what a retry gets."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Any

import pytest
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)

import semel.guard
from asgi_driver import Conversation, Reply, call
from asgi_shop import ALICE, Shop
from semel.core.model import Mode, Status
from semel.errors import ClaimClosedError, HeaderMalformedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from semel.web.asgi_types import App, AsgiScope, Message, Receive, Send


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


async def pay(app: App, **parts: Any) -> Reply:
    return await call(app, **{"key": "k", "headers": ALICE, **parts})


def answering(shop: Shop, answer: Callable[[], Response], **parts: Any) -> App:
    async def handler(_: Request) -> Response:
        await shop.pay()
        return answer()

    return shop.service(handler, **parts)


@pytest.mark.rule("R1", "O4")
async def test_a_replay_is_the_same_answer_and_says_so(shop: Shop) -> None:
    def answer() -> Response:
        response = PlainTextResponse("paid", 201)
        for name, value in (
            ("Location", "/payments/1"),
            ("ETag", '"1"'),
            ("Link", "</a>; rel=next"),
            ("Link", "</b>; rel=prev"),
            ("Content-Language", "la"),
            ("X-Request-Id", "1"),
            ("RateLimit", '"a";r=1'),
            ("Cache-Control", "max-age=60"),
        ):
            response.headers.append(name, value)
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    app = answering(shop, answer)
    first, again = await pay(app), await pay(app)
    assert (first.status, again.status) == (201, 201)
    assert first.body == again.body == b"paid"
    assert len(first.all("set-cookie")) == 2
    assert not first.replayed
    assert again.headers == [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"location", b"/payments/1"),
        (b"etag", b'"1"'),
        (b"link", b"</a>; rel=next"),
        (b"link", b"</b>; rel=prev"),
        (b"content-language", b"la"),
        (b"content-length", b"4"),
        (b"cache-control", b"no-store"),
        (b"idempotent-replayed", b"true"),
    ]
    assert (shop.runs, shop.effects, shop.told) == (1, 1, ["executed", "replayed"])


@pytest.mark.rule("R1")
async def test_a_replay_as_the_application_wants_it() -> None:
    shop = Shop(
        replay_status=200, replay_marker="X-Again", keep_headers=frozenset({"X-Request-Id"})
    )
    app = answering(shop, lambda: Response(b"1", 201, {"X-Request-Id": "7"}))
    await pay(app)
    again = await pay(app)
    assert (again.status, again.get("x-again"), again.get("x-request-id")) == (200, "true", "7")


@pytest.mark.rule("R1", "O6")
async def test_an_answer_without_content(shop: Shop) -> None:
    app = answering(shop, lambda: Response(status_code=204))
    for reply in (await pay(app), await pay(app)):
        assert (reply.status, reply.body, reply.complete) == (204, b"", True)
        assert reply.get("content-length") is None
        assert reply.get("content-type") is None
    assert shop.runs == 1


NOT_STORED = [301, 302, 307, 308, 401, 403, 408, 409, 412, 421, 423, 425, 428, 429, 500, 503]


@pytest.mark.rule("O1", "O2")
@pytest.mark.parametrize("status", NOT_STORED)
async def test_what_is_not_stored_runs_again(shop: Shop, status: int) -> None:
    app = answering(shop, lambda: Response(b"no", status))
    for _ in range(2):
        reply = await pay(app)
        assert (reply.status, reply.body, reply.replayed) == (status, b"no", False)
    assert (shop.runs, shop.untouched) == (2, True)


@pytest.mark.rule("O1", "O2")
@pytest.mark.parametrize("status", [400, 402, 404, 410, 418, 422])
async def test_a_final_refusal_is_stored_without_its_effects(shop: Shop, status: int) -> None:
    app = answering(shop, lambda: Response(b"no", status))
    assert not (await pay(app)).replayed
    again = await pay(app)
    assert (again.status, again.body, again.replayed) == (status, b"no", True)
    assert (shop.runs, shop.effects, shop.claims) == (1, 0, [Status.COMPLETED])


@pytest.mark.rule("O1")
async def test_redirects(shop: Shop) -> None:
    see_other = answering(shop, lambda: RedirectResponse("/payments/1", 303))
    await pay(see_other)
    again = await pay(see_other)
    assert (again.status, again.get("location"), again.replayed) == (303, "/payments/1", True)
    slash = answering(shop, lambda: RedirectResponse("/payments/", 307))
    assert (await pay(slash, key="other")).status == 307
    assert (await pay(see_other, key="other")).status == 303


@pytest.mark.rule("O4")
async def test_work_after_the_response_is_done_once_and_after_the_commit(shop: Shop) -> None:
    seen: list[object] = []

    async def notify() -> None:
        seen.append(("task", shop.effects))
        with pytest.raises(ClaimClosedError):
            _ = shop.guard.current().tx

    async def handler(_: Request) -> Response:
        await shop.pay()
        shop.guard.current().after_commit(lambda: seen.append(("hook", shop.effects)))
        return JSONResponse({}, 201, background=BackgroundTask(notify))

    app = shop.service(handler)
    talk = Conversation(app, key="k", headers=ALICE)
    send = talk.send

    async def watched(message: Message) -> None:
        seen.append(message["type"])
        await send(message)

    await talk.app(talk.scope, talk.receive, watched)
    assert seen == [
        "http.response.start",
        "http.response.body",
        ("hook", 1),
        ("task", 1),
    ]
    assert (await pay(app)).replayed
    assert len(seen) == 4


@pytest.mark.rule("O4", "O2")
async def test_no_hook_runs_for_what_was_rolled_back(shop: Shop) -> None:
    seen: list[int] = []

    async def handler(_: Request) -> Response:
        shop.guard.current().after_commit(lambda: seen.append(1))
        return Response(status_code=503)

    await pay(shop.service(handler))
    assert not seen


TEXT = b"once and only once " * 100


@pytest.mark.rule("R1")
async def test_compression_outside(shop: Shop) -> None:
    outside = [Middleware(GZipMiddleware)]
    app = answering(shop, lambda: Response(TEXT, 201), outside=outside)
    asks = {**ALICE, "accept-encoding": "gzip"}
    first, zipped, plain = (
        await pay(app, headers=asks),
        await pay(app, headers=asks),
        await pay(app),
    )
    for reply in (first, zipped):
        assert reply.get("content-encoding") == "gzip"
        assert gzip.decompress(reply.body) == TEXT
    assert (plain.get("content-encoding"), plain.body) == (None, TEXT)
    assert zipped.replayed
    assert plain.replayed


@pytest.mark.rule("R1")
async def test_compression_inside(shop: Shop) -> None:
    inside = [Middleware(GZipMiddleware)]
    app = answering(shop, lambda: Response(TEXT, 201), inside=inside)
    asks = {**ALICE, "accept-encoding": "gzip"}
    first, zipped, plain = (
        await pay(app, headers=asks),
        await pay(app, headers=asks),
        await pay(app),
    )
    assert first.get("content-encoding") == "gzip"
    assert zipped.body == first.body
    assert zipped.get("content-encoding") == "gzip"
    assert (plain.get("content-encoding"), plain.body) == (None, TEXT)
    assert plain.replayed
    assert shop.runs == 1


@pytest.mark.rule("R1")
async def test_an_encoding_that_this_client_can_not_read(shop: Shop) -> None:
    app = answering(shop, lambda: Response(b"?", 201, {"content-encoding": "br"}))
    await pay(app, headers={**ALICE, "accept-encoding": "br"})
    assert (await pay(app, headers={**ALICE, "accept-encoding": "br"})).replayed
    reply = await pay(app, headers={**ALICE, "accept-encoding": "gzip"})
    assert (reply.status, reply.problem) == (409, "response-not-stored")
    assert shop.runs == 1


@pytest.mark.rule("R3", "R1")
async def test_problems_and_replays_are_readable_across_origins(shop: Shop) -> None:
    cors = Middleware(
        CORSMiddleware,
        allow_origins=["https://shop.example"],
        allow_methods=["POST"],
        allow_headers=["idempotency-key", "authorization"],
        expose_headers=["Idempotent-Replayed", "Retry-After"],
    )
    app = answering(shop, lambda: Response(b"1", 201), outside=[cors])
    headers = {**ALICE, "origin": "https://shop.example"}
    await pay(app, headers=headers)
    for reply in (await pay(app, headers=headers), await pay(app, headers=headers, body=b"2")):
        assert reply.get("access-control-allow-origin") == "https://shop.example"
        assert reply.get("access-control-expose-headers") == "Idempotent-Replayed, Retry-After"
    preflight = {
        "origin": "https://shop.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "idempotency-key",
    }
    assert (await call(app, "OPTIONS", headers=preflight)).status == 200


@pytest.mark.rule("R1", "O6")
async def test_an_answer_can_not_smuggle_a_header(shop: Shop) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        del scope, receive
        await shop.pay()
        headers = [(b"location", b"/x\r\nset-cookie: a=b")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    talk = Conversation(shop.guarded(app), key="k", headers=ALICE)
    with pytest.raises(HeaderMalformedError):
        await talk.run()
    assert not talk.sent
    assert shop.untouched


@pytest.mark.rule("W2")
async def test_the_claim_reaches_threads_and_leaves_with_the_request(shop: Shop) -> None:
    digests: list[str] = []

    def handler(_: Request) -> Response:
        digests.append(shop.guard.current().key_digest)
        return Response(status_code=201)

    assert (await pay(shop.service(handler))).status == 201
    assert digests[0]
    assert semel.guard.current() is None


@pytest.mark.rule("O6")
async def test_a_handler_may_give_the_key_back_itself(shop: Shop) -> None:
    async def handler(_: Request) -> Response:
        await shop.pay()
        await shop.guard.current().release()
        return JSONResponse({"accepted": False}, 200)

    app = shop.service(handler)
    assert (await pay(app)).status == 200
    assert not (await pay(app)).replayed
    assert (shop.runs, shop.untouched) == (2, True)


@pytest.mark.rule("A1", "R3")
async def test_a_key_in_use_is_told_when_to_come_back(shop: Shop) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Response:
        await shop.pay()
        entered.set()
        await leave.wait()
        return JSONResponse({}, 201)

    app = shop.service(slow)
    first = Conversation(app, key="secret-key", headers=ALICE).start()
    await entered.wait()
    second = await call(app, key="secret-key", headers=ALICE)
    assert (second.status, second.problem) == (409, "in-flight")
    assert second.json()["retryable"]
    assert int(second.get("retry-after") or "") >= 1
    leave.set()
    assert (await first).status == 201
    assert shop.told == ["in-flight", "executed"]
    assert shop.runs == 1


@pytest.mark.rule("A1")
async def test_of_many_at_once_one_runs(shop: Shop) -> None:
    """Count handlers, not rows."""
    gate = asyncio.Event()

    async def slow(_: Request) -> Response:
        await shop.pay()
        await gate.wait()
        return JSONResponse({}, 201)

    app = shop.service(slow)
    tasks = [Conversation(app, key="k", headers=ALICE).start() for _ in range(20)]
    done: set[asyncio.Task[Reply]] = set()
    while len(done) < 19:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    gate.set()
    replies = await asyncio.gather(*tasks)
    assert sorted(reply.status for reply in replies) == [201] + [409] * 19
    assert (shop.runs, shop.effects, shop.claims) == (1, 1, [Status.COMPLETED])
