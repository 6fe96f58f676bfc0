"""Refusals as problem details."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from semel.core.model import InDoubt, InFlight, Mismatch, NotStored, StaleKey
from semel.core.problem import IN_FLIGHT, KEY_MALFORMED, PROBLEMS, STORE_UNAVAILABLE, from_decision
from semel.errors import HeaderMalformedError

if TYPE_CHECKING:
    from semel.core.model import Answer
    from semel.core.problem import Refusal

TABLE = {
    "key-missing": (400, False),
    "key-malformed": (400, False),
    "scope-missing": (400, False),
    "key-reused": (422, False),
    "in-flight": (409, True),
    "outcome-unknown": (409, False),
    "stale-key": (412, False),
    "body-too-large": (413, False),
    "response-not-stored": (409, False),
    "store-unavailable": (503, True),
    "precondition-failed": (412, False),
    "precondition-required": (428, False),
}


def content(answer: Answer) -> dict[str, Any]:
    assert answer.body is not None
    parsed: dict[str, Any] = json.loads(answer.body)
    return parsed


@pytest.mark.rule("R3")
def test_the_table_of_problems() -> None:
    assert {
        name: (problem.status, problem.retryable) for name, problem in PROBLEMS.items()
    } == TABLE


@pytest.mark.rule("R3")
@pytest.mark.parametrize("name", TABLE)
def test_a_problem_is_a_problem_details_object(name: str) -> None:
    status, retryable = TABLE[name]
    answer = PROBLEMS[name].to_answer()
    headers = dict(answer.headers)
    body = content(answer)
    assert answer.status == body["status"] == status
    assert headers[b"content-type"] == b"application/problem+json"
    assert headers[b"content-length"] == str(len(answer.body or b"")).encode()
    assert headers[b"cache-control"] == b"no-store"
    assert (b"retry-after" in headers) == body["retryable"] == retryable
    assert b"link" not in headers
    assert set(body) == {"type", "title", "status", "detail", "retryable"}
    assert body["type"] == f"urn:semel:problem:{name}"
    assert body["title"]
    assert body["detail"].endswith(".")


@pytest.mark.rule("R3")
def test_base_docs_detail_and_headers_are_the_applications() -> None:
    answer = KEY_MALFORMED.to_answer(
        base="https://shop.example/problems/",
        docs="https://shop.example/keys",
        detail="the key is blank",
        headers=((b"x-extra", b"1"),),
    )
    assert content(answer)["type"] == "https://shop.example/problems/key-malformed"
    assert content(answer)["detail"] == "the key is blank"
    assert (b"link", b'<https://shop.example/keys>; rel="describedby"') in answer.headers
    assert answer.headers[-1] == (b"x-extra", b"1")
    with pytest.raises(HeaderMalformedError):
        KEY_MALFORMED.to_answer(docs="https://shop.example/\r\nSet-Cookie: a=b")
    with pytest.raises(HeaderMalformedError):
        KEY_MALFORMED.to_answer(headers=((b"x-extra", b"a\nb"),))


@pytest.mark.rule("R3", "A1")
@pytest.mark.parametrize(
    ("seconds", "sent"),
    [
        *((None, b"1"), (0.0, b"1"), (-5.0, b"1"), (0.2, b"1"), (1.0, b"1"), (1.001, b"2")),
        *((9.99, b"10"), (math.nan, b"1"), (math.inf, b"86400"), (1e300, b"86400")),
    ],
)
def test_retry_after_is_whole_seconds_rounded_up(seconds: float | None, sent: bytes) -> None:
    assert dict(IN_FLIGHT.to_answer(retry_after=seconds).headers)[b"retry-after"] == sent


@pytest.mark.rule("R3")
def test_retry_after_is_for_what_may_be_retried() -> None:
    assert b"retry-after" not in dict(KEY_MALFORMED.to_answer(retry_after=5).headers)
    assert dict(STORE_UNAVAILABLE.to_answer(retry_after=5).headers)[b"retry-after"] == b"5"


@pytest.mark.rule("R3")
@pytest.mark.parametrize(
    ("decision", "name", "wait"),
    [
        (InFlight(2.5), "in-flight", b"3"),
        (Mismatch(), "key-reused", None),
        (StaleKey(), "stale-key", None),
        (InDoubt(), "outcome-unknown", None),
        (NotStored(201), "response-not-stored", None),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_decisions_become_problems(decision: Refusal, name: str, wait: bytes | None) -> None:
    problem = from_decision(decision)
    assert problem.name == name
    assert dict(problem.to_answer().headers).get(b"retry-after") == wait
