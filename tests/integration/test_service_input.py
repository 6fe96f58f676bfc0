"""What the reference service refuses: a problem each, nothing stored, no effect, no 500."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from serving import PAYMENT, Served, semel

PROBLEM = "application/problem+json"
CHALLENGE = 'Bearer realm="payments"'


def raw_post(service: Served, *headers: bytes) -> tuple[int, bytes]:
    """Send headers that no client library would send; returns status and answer."""
    body = json.dumps(PAYMENT).encode()
    request = (
        b"POST /payments HTTP/1.1",
        b"Host: localhost",
        b"Connection: close",
        b"Authorization: Bearer demo-1",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        *headers,
        b"",
        body,
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        connection.sendall(b"\r\n".join(request))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.split()[1]), answer


@contextmanager
def nothing_left(service: Served, store: str) -> Iterator[None]:
    """Make sure that no payment is made, no handler started and no claim left."""
    before = service.count(), service.handlers(), claims(store)
    yield
    assert (service.count(), service.handlers(), claims(store)) == before


def claims(store: str) -> object:
    return json.loads(semel("keys", "list", "--json", "--store", store).stdout)


BAD_KEYS = {
    "missing": (),
    "blank": (b"Idempotency-Key:",),
    "spaces": (b"Idempotency-Key:    ",),
    "empty string": (b'Idempotency-Key: ""',),
    "half quoted": (b'Idempotency-Key: "key',),
    "256 characters": (b"Idempotency-Key: " + b"k" * 256,),
    "not ASCII": ("Idempotency-Key: ключ".encode(),),
    "inner space": (b"Idempotency-Key: a b",),
    "list": (b"Idempotency-Key: a, b",),
    "doubled": (b"Idempotency-Key: a", b"Idempotency-Key: a"),
}


@pytest.mark.rule("K1", "K2", "K3")
def test_a_bad_key_is_400(service: Served, store: str) -> None:
    with nothing_left(service, store):
        answers = {name: raw_post(service, *headers) for name, headers in BAD_KEYS.items()}

    assert {name: status for name, (status, _) in answers.items()} == dict.fromkeys(BAD_KEYS, 400)
    for name, (_, text) in answers.items():
        kind = b"key-missing" if name == "missing" else b"key-malformed"
        assert b"urn:semel:problem:" + kind in text, name
        assert PROBLEM.encode() in text


@pytest.mark.rule("K2")
def test_the_syntax_of_a_key_comes_before_who_calls(service: Served) -> None:
    assert service.pay('"half', bearer="nobody").status_code == 400


BAD_CREDENTIALS: dict[str, list[tuple[str, str]]] = {
    "none": [],
    "unknown": [("Authorization", "Bearer nobody")],
    "empty": [("Authorization", "Bearer")],
    "another scheme": [("Authorization", "Basic demo-1")],
    "no scheme": [("Authorization", "demo-1")],
    "two": [("Authorization", "Bearer demo-1"), ("Authorization", "Bearer demo-2")],
}


@pytest.mark.rule("R2")
@pytest.mark.parametrize("headers", BAD_CREDENTIALS.values(), ids=BAD_CREDENTIALS)
def test_without_a_token_everything_is_refused(
    service: Served, key: str, headers: list[tuple[str, str]]
) -> None:
    location = service.pay(key).headers["Location"]
    known = service.http.headers.pop("Authorization")
    try:
        answers = [
            service.http.request(
                method, path, headers=[*headers, ("Idempotency-Key", key)], json=PAYMENT
            )
            for method, path in (
                ("POST", "/payments"),
                ("GET", "/payments"),
                ("GET", "/payments?count=true"),
                ("GET", location),
                ("GET", "/test/holds"),
                ("POST", "/test/holds/any/release"),
            )
        ]
    finally:
        service.http.headers["Authorization"] = known

    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["WWW-Authenticate"] for answer in answers} == {CHALLENGE}
    assert {answer.headers["Content-Type"] for answer in answers} == {PROBLEM}
    assert service.runs(key) == 1


BAD_BODIES = {
    "nothing": b"",
    "no JSON": b"amount=500",
    "cut off": b'{"amount": 500',
    "something behind it": b'{"amount": 500, "currency": "RUB"} 1',
    "an array": b"[]",
    "no UTF-8": b'{"amount": 1, "currency": "\xff\xff\xff"}',
    "nested 100 000 times": b"[" * 100_000,
    "metadata nested 100 000 times": b'{"amount":1,"currency":"RUB","metadata":'
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}",
    "5 000 digits": b'{"currency": "RUB", "amount": ' + b"9" * 5_000 + b"}",
    "5 000 digits aside": b'{"currency":"RUB","amount":1,"metadata":' + b"9" * 5_000 + b"}",
    "huge exponent": b'{"currency": "RUB", "amount": 1e999999999}',
    "absurd exponent": b'{"currency": "RUB", "amount": 1e99999999999999999999}',
    "lone surrogate": b'{"currency": "RUB", "amount": 1, "metadata": "\\ud800"}',
    "lone surrogate as name": b'{"currency": "RUB", "amount": 1, "\\udfff": 1}',
    "NaN": b'{"currency": "RUB", "amount": 1, "metadata": NaN}',
    "name without quotes": b'{amount: 1, "currency": "RUB"}',
    "number for a name": b'{1: 1, "currency": "RUB"}',
    "no comma": b'{"amount": 1 "currency": "RUB"}',
    "no amount": b'{"currency": "RUB"}',
    "zero": b'{"currency": "RUB", "amount": 0}',
    "negative": b'{"currency": "RUB", "amount": -1}',
    "fraction": b'{"currency": "RUB", "amount": 1.5}',
    "boolean": b'{"currency": "RUB", "amount": true}',
    "text": b'{"currency": "RUB", "amount": "1"}',
    "beyond 64 bits": b'{"currency": "RUB", "amount": 9223372036854775808}',
    "amount twice": b'{"currency": "RUB", "amount": 1, "amount": 1}',
    "small currency": b'{"currency": "rub", "amount": 1}',
    "long currency": b'{"currency": "RUBL", "amount": 1}',
    "unknown field": b'{"currency": "RUB", "amount": 1, "client": "shop-2"}',
}


@pytest.mark.rule("F7")
def test_a_bad_body_is_422_and_its_key_is_free(service: Served, store: str, key: str) -> None:
    with nothing_left(service, store):
        answers = {name: service.pay(key, body) for name, body in BAD_BODIES.items()}

    statuses = {name: answer.status_code for name, answer in answers.items()}
    assert statuses == dict.fromkeys(BAD_BODIES, 422)
    assert {answer.headers["Content-Type"] for answer in answers.values()} == {PROBLEM}
    assert service.pay(key).status_code == 201


@pytest.mark.rule("F7")
def test_a_body_of_two_mebibytes_is_413(service: Served, store: str, key: str) -> None:
    text = json.dumps({**PAYMENT, "metadata": "x" * 2**21})
    parts = [text[at : at + 60_000].encode() for at in range(0, len(text), 60_000)]
    with nothing_left(service, store):
        declared = service.pay(key, text.encode())
        streamed = service.http.post(
            "/payments", content=iter(parts), headers={"Idempotency-Key": key}
        )

    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert streamed.json()["type"] == "urn:semel:problem:body-too-large"


BAD_FAULTS = (
    "nonsense",
    "delay",
    "delay=",
    "delay=nan",
    "delay=-1",
    "die=1",
    "status=99",
    "status=9" + "9" * 5_000,
    "hold=",
    "hold=../a",
    "hold=a; nonsense",
)


def test_what_is_no_fault_is_400(service: Served, store: str, key: str) -> None:
    with nothing_left(service, store):
        answers = [service.pay(key, fault=fault) for fault in BAD_FAULTS]

    assert {answer.status_code for answer in answers} == {400}
    assert {answer.headers["Content-Type"] for answer in answers} == {PROBLEM}
