"""What a guarded operation says about itself in OpenAPI (rule X1).

The key's header is described, and is no parameter of FastAPI's: a request without it
is answered by the guard, not by validation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from semel.core.key import MAX_LENGTH, Header
from semel.core.problem import (
    BODY_TOO_LARGE,
    IN_FLIGHT,
    KEY_MALFORMED,
    KEY_MISSING,
    KEY_REUSED,
    OUTCOME_UNKNOWN,
    RESPONSE_NOT_STORED,
    SCOPE_MISSING,
    STORE_UNAVAILABLE,
    Problem,
)

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant
    from fastapi.routing import APIRoute

    from semel.core.options import Options

MEDIA_TYPE: Final = "application/problem+json"
_VALIDATION: Final = 422
# FastAPI takes the component's schema from the model of one response. These are the
# statuses that applications describe by models of their own most rarely.
_CARRIERS: Final = (BODY_TOO_LARGE.status, STORE_UNAVAILABLE.status, IN_FLIGHT.status)
_UNITS: Final = ((86_400, "days"), (3_600, "hours"), (60, "minutes"))


class SemelProblem(BaseModel):
    """Why a request with an idempotency key was not executed (RFC 9457)."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})

    type: str = Field(description="Identifies the kind of problem; never changes.")
    title: str = Field(description="The kind in a few words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What to do about it.")
    retryable: bool = Field(description="Whether the same request may be sent again as it is.")


class _Content(dict[str, Any]):
    """Content whose model FastAPI describes under the media type that problems have."""

    def setdefault(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - as a dict's
        del key
        return super().setdefault(MEDIA_TYPE, default)


class Described:
    """The description of one route."""

    def __init__(self, options: Options, *, optional: bool, shared: bool) -> None:
        """Describe a route.

        Args:
            options: how it is guarded.
            optional: some of its requests need no key.
            shared: all callers are one, so that nobody has to be known.
        """
        self._options = options
        self._required = options.required and options.when is None and not optional
        missing = [KEY_MISSING] if options.required else []
        nobody = [] if shared else [SCOPE_MISSING]
        self._problems = (
            *missing,
            KEY_MALFORMED,
            *nobody,
            IN_FLIGHT,
            OUTCOME_UNKNOWN,
            RESPONSE_NOT_STORED,
            BODY_TOO_LARGE,
            KEY_REUSED,
            STORE_UNAVAILABLE,
        )
        self._schema: Mapping[str, Any] = {"$ref": "#/components/schemas/SemelProblem"}

    def settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return a route's settings with the schema of problems in them."""
        responses = dict(settings.get("responses") or {})
        models = {int(key): _model(value) for key, value in responses.items() if _is_status(key)}
        if SemelProblem not in models.values():
            free = [status for status in _CARRIERS if models.get(status) is None]
            if free:
                given = responses.pop(str(free[0]), None) or responses.get(free[0]) or {}
                content = _Content(given.get("content") or {})
                responses[free[0]] = {**given, "model": SemelProblem, "content": content}
            else:
                self._schema = SemelProblem.model_json_schema()
        return {**settings, "responses": responses}

    def operation(self, route: APIRoute) -> dict[str, Any]:
        """Return a route's `openapi_extra`, its own and what the guard adds."""
        extra = dict(route.openapi_extra or {})
        parameters = list(extra.get("parameters") or ())
        source = self._options.key
        if isinstance(source, Header) and not _has_header(route, parameters, source.name):
            parameters.append(self._parameter(source.name))
        if parameters:
            extra["parameters"] = parameters
        described = {str(key): value for key, value in (extra.get("responses") or {}).items()}
        for status in dict.fromkeys(problem.status for problem in self._problems):
            ours = self._response(status, route)
            theirs = described.get(str(status)) or {}
            content = {**(theirs.get("content") or {}), **ours["content"]}
            described[str(status)] = {**ours, **theirs, "content": content}
        return {**extra, "responses": described}

    def _parameter(self, name: str) -> dict[str, Any]:
        options = self._options
        form = "in double quotes" if options.strict_key else "in double quotes or bare"
        return {
            "name": name,
            "in": "header",
            "required": self._required,
            "description": (
                f"A key that you make for this operation, such as a UUID: 1 to {MAX_LENGTH} "
                f"visible ASCII characters, {form}. Send the same key on every retry, and a new "
                "one for every other operation. The answer is kept for "
                f"{_duration(options.retention)}: a retry within that time gets it again, with "
                f"`{options.replay_marker}: true`, and nothing is done twice."
            ),
            # In quotes, each character may be escaped by another one.
            "schema": {"type": "string", "minLength": 1, "maxLength": 2 * MAX_LENGTH + 2},
            "example": '"8e03978e-40d5-43dd-bc93-6894a57f9324"',
        }

    def _response(self, status: int, route: APIRoute) -> dict[str, Any]:
        problems = [problem for problem in self._problems if problem.status == status]
        given = _get(route.responses, status) or {}
        texts = [given["description"]] if given.get("description") else []
        if status == _VALIDATION and not texts and _has_parameters(route):
            texts = ["Validation Error"]
        content = {
            "schema": self._schema,
            "examples": {problem.name: self._example(problem) for problem in problems},
        }
        response: dict[str, Any] = {
            "description": "; or: ".join([*texts, *(problem.title for problem in problems)]),
            "content": {MEDIA_TYPE: content},
        }
        if any(problem.retryable for problem in problems):
            text = "Seconds after which the same request may be sent again, if it may be."
            schema = {"type": "integer", "minimum": 1}
            response["headers"] = {"Retry-After": {"description": text, "schema": schema}}
        return response

    def _example(self, problem: Problem) -> dict[str, Any]:
        answer = problem.to_answer(base=self._options.problem_base)
        return {"summary": problem.title, "value": json.loads(answer.body or b"")}


def _is_status(key: object) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and key.isdigit())


def _model(response: Mapping[str, Any]) -> object:
    return response.get("model")


def _get(responses: Mapping[int | str, dict[str, Any]], status: int) -> dict[str, Any] | None:
    return responses.get(status) or responses.get(str(status))


def _dependants(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for inner in dependant.dependencies:
        yield from _dependants(inner)


def _has_header(route: APIRoute, parameters: list[Any], name: str) -> bool:
    """Say whether a header is described already, by the application or by a route before."""
    fields = (field for one in _dependants(route.dependant) for field in one.header_params)
    names = {str(field.alias) for field in fields}
    names |= {str(one.get("name")) for one in parameters if one.get("in") == "header"}
    return name.lower() in {known.lower() for known in names}


def _has_parameters(route: APIRoute) -> bool:
    return bool(route.body_field) or any(
        one.path_params or one.query_params or one.header_params or one.cookie_params
        for one in _dependants(route.dependant)
    )


def _duration(seconds: float) -> str:
    for length, unit in _UNITS:
        if seconds % length == 0 and seconds >= 2 * length:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} seconds"
