"""What is refused, or let through, before a handler runs."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse, Response

from asgi_driver import Conversation, Reply, call
from asgi_shop import ALICE, Shop, bearer
from semel.asgi import IdempotencyMiddleware
from semel.core.key import BodyField, FormField
from semel.core.model import Mode
from semel.errors import RecipeUnknownError, StoreUnavailableError

if TYPE_CHECKING:
    from semel.web.asgi_types import App, AsgiScope, Message, Receive, Send
    from semel.web.request import Request

BAD_KEYS = {
    "blank": b"",
    "only spaces": b"   ",
    "two keys": b'"one", "two"',
    "bare list": b"one,two",
    "half quoted": b'"half',
    "quote inside": b'ha"lf',
    "behind the quote": b'"one"x',
    "parameter": b'"one";a=1',
    "empty string": b'""',
    "wrong escape": b'"a\\b"',
    "inner blank": b"a b",
    "quoted blank": b'"a b"',
    "tab": b"a\tb",
    "control": b"a\x01b",
    "line feed": b"a\nb",
    "nul": b"a\x00b",
    "delete": b"a\x7fb",
    "non-ascii": "schlüssel".encode(),
    "latin-1": b"schl\xfcssel",
    "256": b"k" * 256,
    "256 quoted": b'"' + b"k" * 256 + b'"',
}


@pytest.fixture(params=[Mode.JOINED, Mode.ATOMIC])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request.param)


def paying(shop: Shop, **parts: Any) -> App:
    async def pay(request: StarletteRequest) -> Response:
        await request.body()
        await shop.pay()
        return JSONResponse({"paid": True}, 201)

    if parts:

        async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
            response = await pay(StarletteRequest(scope, receive))
            await response(scope, receive, send)

        return shop.guarded(app, **parts)
    return shop.service(pay)


@pytest.mark.rule("K2", "R3")
@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS)
async def test_a_malformed_key_is_refused_before_anything_is_asked(key: bytes) -> None:
    shop = Shop()
    asked: list[object] = []
    app = paying(shop, scope=asked.append)
    reply = await call(app, key=key, headers=ALICE)
    assert (reply.status, reply.problem) == (400, "key-malformed")
    assert not reply.json()["retryable"]
    assert not asked
    assert (shop.runs, shop.untouched) == (0, True)
    assert shop.told == ["refused"]


@pytest.mark.rule("K2")
async def test_two_header_lines_are_refused() -> None:
    shop = Shop()
    lines = [(b"idempotency-key", b"one"), (b"idempotency-key", b"one")]
    reply = await call(paying(shop), headers=[*lines, (b"authorization", b"Bearer alice")])
    assert (reply.status, reply.problem) == (400, "key-malformed")
    assert shop.runs == 0


@pytest.mark.rule("K1", "K2")
async def test_quoted_and_bare_are_the_same_key(shop: Shop) -> None:
    app = paying(shop)
    key = "!" + "k" * 253 + "~"
    assert (await call(app, key=key, headers=ALICE)).status == 201
    again = await call(app, key=f'"{key}"', headers=ALICE)
    assert (again.status, again.replayed, shop.runs) == (201, True, 1)


@pytest.mark.rule("K1")
async def test_strict_takes_the_quoted_form_only() -> None:
    shop = Shop(strict_key=True)
    assert (await call(paying(shop), key="bare", headers=ALICE)).problem == "key-malformed"
    assert (await call(paying(shop), key='"quoted"', headers=ALICE)).status == 201


@pytest.mark.rule("K3", "R3")
async def test_a_missing_key_is_refused_where_it_is_required() -> None:
    shop = Shop(docs_url="https://shop.example/keys", problem_base="https://shop.example/p/")
    reply = await call(paying(shop), headers=ALICE)
    assert (reply.status, reply.json()["type"]) == (400, "https://shop.example/p/key-missing")
    assert reply.get("link") == '<https://shop.example/keys>; rel="describedby"'
    assert (shop.runs, shop.untouched, shop.told) == (0, True, ["refused"])


class Seen:
    """An application that notes exactly what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, object, object]] = []

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self.calls.append((scope, receive, send))


UNGUARDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "get": ({}, {"scope": {"method": "GET"}, "key": "k"}),
    "put": ({}, {"scope": {"method": "PUT"}, "key": "k"}),
    "no key": ({"required": False}, {}),
    "exempt": ({"when": lambda request: request.path != "/payments"}, {"key": "k"}),
    "off": ({"enabled": False}, {"key": "k"}),
    "websocket": ({}, {"scope": {"type": "websocket"}, "key": "k"}),
    "lifespan": ({}, {"scope": {"type": "lifespan"}}),
}


@pytest.mark.rule("K3", "W1")
@pytest.mark.parametrize("case", UNGUARDED.values(), ids=UNGUARDED)
async def test_what_is_not_guarded_passes_untouched(
    case: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    options, parts = case
    shop, seen = Shop(**options), Seen()
    talk = Conversation(shop.guarded(seen), **parts)
    scope, receive, send = talk.scope, talk.receive, talk.send
    await talk.app(scope, receive, send)
    ((got_scope, got_receive, got_send),) = seen.calls
    assert got_scope is scope
    assert got_receive is receive
    assert got_send is send
    assert talk.taken == 0
    assert shop.untouched


@pytest.mark.rule("K3")
async def test_an_exemption_may_look_into_the_body() -> None:
    async def is_mutation(request: Request) -> bool:
        return b"mutation" in await request.body()

    shop = Shop(when=is_mutation)
    bodies: list[bytes] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        bodies.append(await StarletteRequest(scope, receive).body())
        await Response(b"ok")(scope, receive, send)

    query = [b'{"query": "query {', b'a}"}']
    assert (await call(shop.guarded(app), body=query)).status == 200
    assert bodies == [b"".join(query)]
    assert (await call(shop.guarded(app), body=b"mutation")).problem == "key-missing"


@pytest.mark.rule("K3")
async def test_an_exemption_that_fails_exempts_nobody() -> None:
    def broken(request: Request) -> bool:
        raise LookupError(request.path)

    shop = Shop(when=broken)
    assert (await call(paying(shop), key="k", headers=ALICE)).status == 503
    assert shop.runs == 0


NONSENSE = {
    "empty": b"",
    "invalid": b'{"amount": ',
    "nested": b"[" * 100_000 + b"]" * 100_000,
    "nested, open": b"[" * 100_000,
    "number": b'{"amount": ' + b"9" * 5_000 + b"}",
    "exponent": b"1e999999999",
    "surrogate": b'{"a": "\\ud800"}',
    "raw surrogate": b'{"a": "\xed\xa0\x80"}',
    "not utf-8": b"\xff\xfe\x00",
    "nan": b"[NaN, Infinity]",
    "twice": b'{"a": 1, "a": 2}',
    "nul": b"\x00" * 1000,
}
TYPES = ["application/json", "multipart/form-data", "application/x-www-form-urlencoded", "\xff;;="]


@pytest.mark.rule("F7", "F2")
@pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("kind", TYPES)
async def test_no_body_makes_a_500(kind: str, body: bytes) -> None:
    shop = Shop()
    app = paying(shop)
    headers = {**ALICE, "content-type": kind}
    assert (await call(app, key="k", headers=headers, body=body)).status == 201
    assert (await call(app, key="k", headers=headers, body=body)).replayed
    other = await call(app, key="k", headers=headers, body=body + b"\x01")
    assert (other.status, other.problem) == (422, "key-reused")
    assert shop.runs == 1


@pytest.mark.rule("F7")
@pytest.mark.parametrize("length", [str(2 << 20), "9" * 5_000, "0" * 40 + "1048577"])
async def test_a_body_that_says_it_is_too_large_is_not_read(length: str) -> None:
    shop = Shop()
    talk = Conversation(paying(shop), key="k", headers={**ALICE, "content-length": length})
    reply = await talk.run()
    assert (reply.status, reply.problem) == (413, "body-too-large")
    assert talk.taken == 0
    assert (shop.runs, shop.untouched, shop.told) == (0, True, ["refused"])


@pytest.mark.rule("F7")
async def test_a_body_that_grows_too_large_is_not_read_to_its_end() -> None:
    shop = Shop(max_request_bytes=1000)
    talk = Conversation(
        paying(shop),
        key="k",
        headers={**ALICE, "transfer-encoding": "chunked"},
        body=[b"x" * 400] * 10,
    )
    assert (await talk.run()).problem == "body-too-large"
    assert talk.taken == 3
    assert shop.untouched


@pytest.mark.rule("F7")
async def test_a_body_of_exactly_the_limit_runs(shop: Shop) -> None:
    assert (await call(paying(shop), key="k", headers=ALICE, body=b"x" * (1 << 20))).status == 201


@pytest.mark.rule("O5", "F7")
@pytest.mark.parametrize("taken", [0, 1])
async def test_a_client_that_leaves_while_it_sends_is_not_run(taken: int) -> None:
    shop = Shop()
    body = [b"[1,", b"2]"]
    talk = Conversation(paying(shop), key="k", headers=ALICE, body=body)
    receive = talk.receive

    async def leaving() -> Message:
        if talk.taken == taken:
            talk.left.set()
        return await receive()

    await talk.app(talk.scope, leaving, talk.send)
    assert not talk.sent
    assert (shop.runs, shop.untouched) == (0, True)


@pytest.mark.rule("F5", "R3")
async def test_another_request_under_the_key_learns_nothing(shop: Shop) -> None:
    app = paying(shop)
    await call(app, key="secret-key", headers=ALICE, body=b'{"amount": 5}')
    for target, body in (("/payments", b'{"amount": 6}'), ("/payments?to=eve", b'{"amount": 5}')):
        reply = await call(app, "POST", target, key="secret-key", headers=ALICE, body=body)
        assert (reply.status, reply.problem) == (422, "key-reused")
        assert not reply.json()["retryable"]
        assert b"secret-key" not in reply.body
        assert b"amount" not in reply.body
    assert shop.effects == 1


@pytest.mark.rule("O8", "R3")
@pytest.mark.parametrize(
    "error", [StoreUnavailableError("down"), RecipeUnknownError("semel 9")], ids=["down", "recipe"]
)
async def test_without_the_store_nothing_runs(shop: Shop, error: Exception) -> None:
    for statement in ("claim_open", "claim_insert", "claim_look"):
        shop.trouble[statement] = error
    reply = await call(paying(shop), key="k", headers=ALICE)
    assert (reply.status, reply.problem) == (503, "store-unavailable")
    assert reply.json()["retryable"]
    assert reply.get("retry-after")
    assert (shop.runs, shop.untouched, shop.told[-1]) == (0, True, "store-unavailable")


@pytest.mark.rule("K6", "R3")
async def test_no_key_is_ever_seen(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        app = paying(shop)
        replies: list[Reply] = [
            await call(app, key="sesame-open", headers=ALICE, body=body)
            for body in (b"1", b"1", b"2")
        ]
        replies.append(await call(app, key="sesame open", headers=ALICE))
    assert [reply.status for reply in replies] == [201, 201, 422, 400]
    seen = repr([(reply.headers, reply.body) for reply in replies]) + repr(shop.events)
    assert "sesame" not in seen + caplog.text
    assert caplog.records


KEY_SOURCES: dict[str, tuple[object, bytes, str]] = {
    "json": (BodyField("/event/id"), b'{"event": {"id": "evt_1"}}', "application/json"),
    "form": (FormField("key"), b"key=evt_1&a=b", "application/x-www-form-urlencoded"),
    "function": (lambda request: request.headers.get("webhook-id"), b"{}", "application/json"),
}


@pytest.mark.rule("K6")
@pytest.mark.parametrize("case", KEY_SOURCES.values(), ids=KEY_SOURCES)
async def test_a_key_from_elsewhere(shop: Shop, case: tuple[object, bytes, str]) -> None:
    source, body, kind = case
    app = IdempotencyMiddleware(
        paying(shop, scope=bearer).app,  # type: ignore[attr-defined]
        shop.guard.with_options(key=source),
        scope=bearer,
    )
    headers = {**ALICE, "content-type": kind, "webhook-id": "evt_1"}
    assert (await call(app, headers=headers, body=body)).status == 201
    assert (await call(app, headers=headers, body=body)).replayed
    without = {**ALICE, "content-type": kind}
    assert (await call(app, headers=without, body=b"")).problem == "key-missing"
    assert shop.runs == 1


@pytest.mark.rule("K6", "K2")
@pytest.mark.parametrize("found", ["", "a b", 7, "k" * 256])
async def test_a_function_that_finds_no_key(found: object) -> None:
    async def source(_: Request) -> object:
        return found

    shop = Shop(key=source)
    assert (await call(paying(shop), headers=ALICE)).problem == "key-malformed"
    assert shop.untouched


@pytest.mark.rule("K6", "F7")
async def test_a_function_that_can_not_read_the_body_makes_no_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def event_id(request: Request) -> str | None:
        key: str | None = json.loads(await request.body())["id"]
        return key

    shop = Shop(key=event_id, max_request_bytes=20)
    app = paying(shop)
    for body in (b"{", b'{"no": 1}', b"[" * 20):
        assert (await call(app, headers=ALICE, body=body)).problem == "key-malformed"
    assert (await call(app, headers=ALICE, body=b"x" * 21)).problem == "body-too-large"
    assert "raised JSONDecodeError" in caplog.text
    assert shop.untouched
    assert (await call(app, headers=ALICE, body=b'{"id": null}')).problem == "key-missing"
    assert (await call(app, headers=ALICE, body=b'{"id": "evt_1"}')).status == 201


@pytest.mark.rule("K3", "K6")
async def test_without_a_key_in_the_body_the_request_passes_whole() -> None:
    shop = Shop(key=BodyField("/id"), required=False)
    got: list[bytes] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        assert "semel" not in scope
        got.append(await StarletteRequest(scope, receive).body())
        await Response()(scope, receive, send)

    body = [b'{"no": ', b'"id"}']
    assert (await call(shop.guarded(app), headers=ALICE, body=body)).status == 200
    assert got == [b"".join(body)]
