"""A guarded operation describes its key, its problems and its retention (rule X1)."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, FastAPI, Header
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

import semel
from asgi_driver import call
from asgi_shop import ALICE, Shop
from fastapi_app import Payment, guarded_router, service
from semel.core.key import BodyField
from semel.core.key import Header as KeyHeader
from semel.core.problem import PROBLEMS

pytestmark = pytest.mark.rule("X1")

PROBLEM = "application/problem+json"
REFERENCE = {"$ref": "#/components/schemas/SemelProblem"}


async def pay(payment: Payment) -> None:
    """Pay it."""


async def ping() -> None: ...


def document(
    endpoint: Any = pay, *, scope: Any = None, settings: Any = None, **options: Any
) -> dict[str, Any]:
    """Describe an application with one guarded operation."""
    return service(router(endpoint, scope=scope, settings=settings, **options)).openapi()


def router(
    endpoint: Any = pay, *, scope: Any = None, settings: Any = None, **options: Any
) -> APIRouter:
    api = guarded_router(Shop(**options).guard, scope)
    api.api_route("/payments", **{"methods": ["POST"], **(settings or {})})(endpoint)
    return api


def operation(of: dict[str, Any], path: str = "/payments", method: str = "post") -> dict[str, Any]:
    found: dict[str, Any] = of["paths"][path][method]
    return found


def key_of(
    of: dict[str, Any], name: str = "Idempotency-Key", *, method: str = "post"
) -> dict[str, Any] | None:
    described = operation(of, method=method)
    parameters = [p for p in described.get("parameters", ()) if p["name"] == name]
    assert len(parameters) <= 1
    return parameters[0] if parameters else None


def names(of: dict[str, Any], status: int) -> list[str]:
    return list(operation(of)["responses"][str(status)]["content"][PROBLEM]["examples"])


def test_the_key_is_described() -> None:
    key = key_of(document())
    assert key is not None
    assert (key["in"], key["required"]) == ("header", True)
    assert key["schema"] == {"type": "string", "minLength": 1, "maxLength": 512}
    for words in (
        "1 to 255 visible ASCII characters",
        "in double quotes or bare",
        "for 24 hours",
        "`Idempotent-Replayed: true`",
    ):
        assert words in key["description"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (90, "90 seconds"),
        (120, "2 minutes"),
        (3600, "60 minutes"),
        (7200, "2 hours"),
        (86_400, "24 hours"),
        (604_800, "7 days"),
        (0.5, "0.5 seconds"),
    ],
)
def test_the_retention_is_published(seconds: float, words: str) -> None:
    key = key_of(document(retention=seconds))
    assert key is not None
    assert f"The answer is kept for {words}:" in key["description"]


def test_the_retention_of_one_route_is_published() -> None:
    @semel.options(retention=3 * 86_400, strict_key=True, replay_marker="X-Again")
    async def long() -> None: ...

    key = key_of(document(long))
    assert key is not None
    assert "for 3 days" in key["description"]
    assert "characters, in double quotes." in key["description"]
    assert "`X-Again: true`" in key["description"]


@pytest.mark.rule("K3")
@pytest.mark.parametrize(
    ("options", "methods", "required"),
    [
        ({}, ["POST"], True),
        ({"required": False}, ["POST"], False),
        ({"when": lambda _: True}, ["POST"], False),
        ({"methods": {"POST", "PUT"}}, ["PUT", "GET"], False),
    ],
)
def test_a_key_is_required_where_every_request_needs_one(
    options: Any, methods: list[str], required: bool
) -> None:
    settings = {"methods": methods}
    if len(methods) > 1:
        with pytest.warns(UserWarning, match="Duplicate Operation ID"):
            described = document(ping, settings=settings, **options)
    else:
        described = document(ping, settings=settings, **options)
    key = key_of(described, method=methods[0].lower())
    assert key is not None
    assert key["required"] is required


def test_keys_that_are_elsewhere() -> None:
    assert key_of(document(key=KeyHeader("X-Request"))) is None
    assert key_of(document(key=KeyHeader("X-Request")), "X-Request") is not None
    assert key_of(document(key=BodyField("/id"))) is None


def test_the_problems_are_described() -> None:
    described = document()
    assert names(described, 400) == ["key-missing", "key-malformed", "scope-missing"]
    assert names(described, 409) == ["in-flight", "outcome-unknown", "response-not-stored"]
    assert names(described, 413) == ["body-too-large"]
    assert names(described, 422) == ["key-reused"]
    assert names(described, 503) == ["store-unavailable"]
    responses = operation(described)["responses"]
    for status in (400, 409, 413, 422, 503):
        media = ["application/json", PROBLEM] if status == 422 else [PROBLEM]
        assert list(responses[str(status)]["content"]) == media
        content = responses[str(status)]["content"][PROBLEM]
        assert content["schema"] == REFERENCE
        for name, example in content["examples"].items():
            assert example["value"]["type"] == f"urn:semel:problem:{name}"
            assert example["value"]["title"] == PROBLEMS[name].title
    assert [s for s in responses if "Retry-After" in responses[s].get("headers", {})] == [
        "409",
        "503",
    ]
    assert list(described["components"]["schemas"]) == [
        "HTTPValidationError",
        "Payment",
        "SemelProblem",
        "ValidationError",
    ]


def test_only_problems_that_can_occur_are_described() -> None:
    described = document(scope=semel.SHARED, required=False, problem_base="https://shop/p/")
    assert names(described, 400) == ["key-malformed"]
    value = operation(described)["responses"]["400"]["content"][PROBLEM]["examples"]
    assert value["key-malformed"]["value"]["type"] == "https://shop/p/key-malformed"


def test_the_422_of_fastapi_stays_beside_ours() -> None:
    described = operation(document())["responses"]["422"]
    assert described["content"]["application/json"] == {
        "schema": {"$ref": "#/components/schemas/HTTPValidationError"}
    }
    assert described["description"].startswith("Validation Error; or: ")
    alone = operation(document(ping, scope=semel.SHARED))["responses"]["422"]
    assert list(alone["content"]) == [PROBLEM]
    assert "Validation Error" not in alone["description"]


class Conflict(BaseModel):
    seat: int


def test_what_the_application_describes_stays() -> None:
    conflict = {"model": Conflict, "description": "The seat is taken"}
    for statuses in ([409], ["409"], [413, 409], [413, 503], [413, 503, 409]):
        settings = {
            "responses": dict.fromkeys(statuses, conflict),
            "openapi_extra": {"x-ours": 1, "responses": {"400": {"description": "Bad"}}},
            "summary": "Settle",
            "status_code": 201,
        }
        described = document(settings=settings)
        found = operation(described)
        assert (found["summary"], found["x-ours"], found["description"]) == ("Settle", 1, "Pay it.")
        assert found["responses"]["400"]["description"] == "Bad"
        assert found["responses"]["201"]["description"] == "Successful Response"
        for status in statuses:
            response = found["responses"][str(status)]
            assert response["description"].startswith("The seat is taken; or: ")
            schemas = response["content"]
            assert schemas["application/json"]["schema"]["$ref"].endswith("/Conflict")
            assert PROBLEM in schemas
        schema = found["responses"]["400"]["content"][PROBLEM]["schema"]
        if len(statuses) < 3:
            assert schema == REFERENCE
            assert "SemelProblem" in described["components"]["schemas"]
        else:  # no response is left to carry the component
            assert schema["title"] == "SemelProblem"


def test_a_header_that_the_endpoint_declares_is_described_once() -> None:
    async def own(idempotency_key: Annotated[str | None, Header()] = None) -> None: ...

    parameters = operation(document(own))["parameters"]
    assert [p["name"] for p in parameters if p["name"].lower() == "idempotency-key"] == [
        "idempotency-key"
    ]


def test_included_and_mounted_routes() -> None:
    api = router()
    outer = APIRouter(prefix="/outer")
    outer.include_router(api, prefix="/in")
    app = FastAPI()
    app.include_router(outer)
    app.include_router(api, prefix="/again", responses={404: {"description": "none"}})
    sub = service(api)
    app.mount("/sub", sub)
    described = app.openapi()
    assert list(described["paths"]) == ["/outer/in/payments", "/again/payments"]
    for path in described["paths"]:
        found = operation(described, path)
        assert [p["name"] for p in found["parameters"]] == ["Idempotency-Key"]
        assert PROBLEM in found["responses"]["409"]["content"]
    assert operation(described, "/again/payments")["responses"]["404"]["description"] == "none"
    assert key_of(sub.openapi()) is not None


def test_a_route_that_is_made_again_of_a_guarded_one_is_described_once() -> None:
    """As a router does that copies the routes of another one."""
    api = again = router()
    for _ in range(4):
        route: Any = again.routes[0]
        again = APIRouter()
        again.add_api_route(
            "/copied",
            route.endpoint,
            methods=list(route.methods),
            responses=route.responses,
            openapi_extra=route.openapi_extra,
            route_class_override=type(route),
        )
    plain, copied = service(api).openapi(), service(again).openapi()
    expected = {**operation(plain), "operationId": "pay_copied_post"}
    assert operation(copied, "/copied") == expected
    assert plain["components"] == copied["components"]


@pytest.mark.rule("K3")
def test_what_is_not_guarded_is_described_as_fastapi_does() -> None:
    plain = FastAPI()
    plain.post("/payments")(pay)
    enabled = document(semel.options(enabled=False)(lambda: None))
    assert key_of(enabled) is None
    assert list(operation(enabled)["responses"]) == ["200"]
    assert key_of(plain.openapi()) is None
    hidden = router(settings={"include_in_schema": False})
    assert get_openapi(title="t", version="1", routes=hidden.routes)["paths"] == {}


async def test_the_header_is_not_validated_by_fastapi() -> None:
    app = service(router(ping))
    reply = await call(app, headers=ALICE)
    assert (reply.status, reply.problem) == (400, "key-missing")
    published = (await call(app, "GET", "/openapi.json")).json()
    assert published["paths"]["/payments"]["post"]["parameters"][0]["name"] == "Idempotency-Key"
