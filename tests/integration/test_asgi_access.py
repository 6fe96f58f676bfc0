"""Who a request is from, and whether it may be answered: asked before anything else."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse, Response

from asgi_driver import call
from asgi_shop import ALICE, Shop, bearer
from semel.asgi import IdempotencyMiddleware
from semel.core.identity import SHARED
from semel.core.model import Mode
from semel.errors import AccessRefusedError, UsageError

if TYPE_CHECKING:
    from semel.web.asgi_types import App, AsgiScope, Receive, Send
    from semel.web.request import Request


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


class Seen:
    """An application that notes exactly what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, object, object]] = []

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self.calls.append((scope, receive, send))


NO_SCOPES: dict[str, object] = {
    "none": None,
    "empty": "",
    "blank": "  ",
    "empty tuple": (),
    "an empty part": ("tenant", ""),
    "a number": 7,
    "bytes": b"alice",
    "a list": ["alice"],
    "a number inside": ("tenant", 7),
}


@pytest.mark.rule("K4")
@pytest.mark.parametrize("scope", NO_SCOPES.values(), ids=NO_SCOPES)
async def test_without_an_owner_nothing_runs(scope: object) -> None:
    shop = Shop()
    reply = await call(paying(shop, scope=lambda _: scope), key="k")
    assert (reply.status, reply.problem) == (400, "scope-missing")
    assert (shop.runs, shop.untouched, shop.told) == (0, True, ["refused"])


@pytest.mark.rule("K4")
async def test_a_scope_of_a_wrong_type_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await call(paying(Shop(), scope=lambda _: 7), key="k")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "returned a int" in record.getMessage()


@pytest.mark.rule("K4", "R3")
async def test_a_scope_function_that_raises_makes_no_500(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: Request) -> str:
        raise ConnectionError(request.headers["authorization"])

    shop = Shop()
    with caplog.at_level(logging.INFO, "semel"):
        reply = await call(paying(shop, scope=broken), key="k", headers=ALICE)
    assert (reply.status, reply.problem) == (503, "scope-missing")
    assert reply.json()["retryable"]
    assert reply.get("retry-after") == "1"
    assert (shop.runs, shop.untouched) == (0, True)
    (record,) = caplog.records
    assert "ConnectionError" in record.getMessage()
    assert "alice" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.rule("K4", "R2")
async def test_the_application_refuses_with_its_own_status() -> None:
    shop = Shop()
    reply = await call(paying(shop), key="k")
    assert (reply.status, reply.get("content-type")) == (401, "application/problem+json")
    assert reply.json() == {
        "type": "about:blank",
        "title": "Unauthorized",
        "status": 401,
        "detail": "send a bearer token",
        "retryable": False,
    }
    assert reply.get("www-authenticate") == 'Bearer realm="shop"'
    assert (shop.runs, shop.untouched) == (0, True)


@pytest.mark.rule("R2")
@pytest.mark.parametrize(("asked", "answered"), [(200, 403), (429, 429), (799, 403), (499, 499)])
async def test_a_refusal_is_an_error_whatever_it_says(asked: int, answered: int) -> None:
    def refuse(_: Request) -> str:
        raise AccessRefusedError(asked, headers=(("Retry-After", "9"), ("Content-Length", "1")))

    reply = await call(paying(Shop(), scope=refuse), key="k")
    assert (reply.status, reply.get("retry-after")) == (answered, "9")
    assert reply.json()["retryable"] == (answered == 429)


@pytest.mark.rule("R1", "R3")
async def test_a_refusal_can_not_smuggle_a_header() -> None:
    def refuse(_: Request) -> str:
        raise AccessRefusedError(401, headers=(("WWW-Authenticate", "Bearer\r\nSet-Cookie: a=b"),))

    reply = await call(paying(Shop(), scope=refuse), key="k")
    assert reply.status == 503
    assert reply.get("set-cookie") is None


@pytest.mark.rule("R2")
async def test_a_stored_answer_is_kept_from_who_may_not_see_it(shop: Shop) -> None:
    allowed: list[bool | None] = [True]

    async def authorize(_: Request) -> Any:
        return allowed[-1]

    app = paying(shop, authorize=authorize)
    assert (await call(app, key="k", headers=ALICE)).status == 201
    for verdict in (False, None):
        allowed.append(verdict)
        refused = await call(app, key="k", headers=ALICE)
        assert (refused.status, refused.json()["type"]) == (403, "about:blank")
    revoked = await call(app, key="k", headers={"authorization": "Bearer eve"})
    assert revoked.status == 401
    allowed.append(True)
    assert (await call(app, key="k", headers=ALICE)).replayed
    assert shop.runs == 1


@pytest.mark.rule("R2")
async def test_an_authorisation_that_fails_lets_nobody_through(shop: Shop) -> None:
    def broken(_: Request) -> bool:
        raise TimeoutError

    def refuses(_: Request) -> bool:
        raise AccessRefusedError(451)

    for authorize, status in ((broken, 503), (refuses, 451)):
        assert (
            await call(paying(shop, authorize=authorize), key="k", headers=ALICE)
        ).status == status
    assert (shop.runs, shop.untouched) == (0, True)


@pytest.mark.rule("K4")
async def test_a_key_belongs_to_its_owner(shop: Shop) -> None:
    app = paying(shop)
    for token in ("alice", "bob"):
        reply = await call(app, key="k", headers={"authorization": f"Bearer {token}"})
        assert (reply.status, reply.replayed) == (201, False)
    assert (shop.runs, shop.effects) == (2, 2)


@pytest.mark.rule("K4")
@pytest.mark.parametrize(
    "scope",
    [SHARED, lambda _: SHARED, lambda _: ("tenant", "user")],
    ids=["shared", "says shared", "two parts"],
)
async def test_owners_of_every_form(shop: Shop, scope: object) -> None:
    app = paying(shop, scope=scope)
    assert (await call(app, key="k")).status == 201
    assert (await call(app, key="k")).replayed


@pytest.mark.rule("K4")
def test_a_middleware_without_an_owner_can_not_be_made() -> None:
    guard = Shop().guard
    with pytest.raises(UsageError, match="scope"):
        IdempotencyMiddleware(Seen(), guard, scope="authenticated")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="never replayed"):
        IdempotencyMiddleware(
            Seen(), guard.with_options(keep_headers=frozenset({"Set-Cookie"})), scope=bearer
        )
    with pytest.raises(UsageError, match="header name"):
        IdempotencyMiddleware(Seen(), guard.with_options(replay_marker="a b"), scope=bearer)


@pytest.mark.rule("W1")
async def test_a_webhook_is_verified_by_its_body_first(shop: Shop) -> None:
    async def verified(request: Request) -> str:
        if request.headers.get("signature") != str(len(await request.body())):
            raise AccessRefusedError(401)
        return "sender"

    app = paying(shop, scope=verified)
    assert (await call(app, key="k", headers={"signature": "9"})).status == 401
    assert shop.untouched
    assert (await call(app, key="k", headers={"signature": "2"})).status == 201


@pytest.mark.rule("K4", "F7")
@pytest.mark.parametrize("limit", [1, 10])
async def test_a_scope_function_that_reads_too_much(limit: int) -> None:
    async def reads(request: Request) -> str:
        return (await request.body()).decode()

    shop = Shop(max_request_bytes=limit)
    reply = await call(paying(shop, scope=reads), key="k", body=b"alice")
    assert reply.status == (413 if limit == 1 else 201)
