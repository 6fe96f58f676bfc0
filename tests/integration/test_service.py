"""The reference service as its clients see it, on every kind of store."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import PAYMENT, Served, lines, semel, serving

PROBLEM = "application/problem+json"


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/shop.db"
        case "postgresql":
            return str(request.getfixturevalue("pg_database"))
        case _:
            return "memory://"


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    return tmp_path / "handlers.log"


@pytest.fixture
def service(store: str, handlers: Path) -> Iterator[Served]:
    with serving(store, "--handler-log", str(handlers)) as served:
        yield served
        assert "Traceback" not in served.errors


@pytest.mark.rule("A1", "R1")
def test_a_payment_is_made_once_and_replayed(service: Served, handlers: Path) -> None:
    first = service.pay("key-1")
    again = service.pay("key-1")

    assert (first.status_code, again.status_code) == (201, 201)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.content == first.content
    assert again.headers["Location"] == first.headers["Location"]
    assert first.json().keys() == {"payment_id", "amount", "currency"}
    assert service.count() == 1
    assert len(lines(handlers)) == 1


@pytest.mark.rule("K4")
def test_the_same_key_of_another_client_is_another_key(service: Served) -> None:
    mine, theirs = service.pay("key-1"), service.pay("key-1", bearer="demo-2")

    assert theirs.status_code == 201
    assert mine.json()["payment_id"] != theirs.json()["payment_id"]
    assert service.count() == 2


def test_a_client_sees_its_own_payments_only(service: Served) -> None:
    mine, theirs = service.pay("mine"), service.pay("theirs", bearer="demo-2")

    shown = service.http.get(mine.headers["Location"])
    hidden = service.http.get(theirs.headers["Location"])
    listed = service.http.get("/payments").json()["payments"]

    assert shown.json().items() >= mine.json().items()
    assert (hidden.status_code, hidden.headers["Content-Type"]) == (404, PROBLEM)
    assert [one["payment_id"] for one in listed] == [mine.json()["payment_id"]]


@pytest.mark.rule("F5", "R3")
def test_another_payment_under_the_same_key_is_refused(service: Served, handlers: Path) -> None:
    service.pay("key-1")
    other = service.pay("key-1", {**PAYMENT, "amount": 501})

    assert (other.status_code, other.headers["Content-Type"]) == (422, PROBLEM)
    assert other.json()["type"] == "urn:semel:problem:key-reused"
    assert (service.count(), len(lines(handlers))) == (1, 1)


@pytest.mark.rule("F2")
@pytest.mark.parametrize(
    "body",
    [
        b'{"currency": "RUB", "amount": 500}',
        b'{"amount":5e2,"currency":"RUB"}',
        b'{"amount":500.0,"currency":"\\u0052UB"}\n',
    ],
)
def test_another_spelling_of_the_same_payment_is_a_replay(service: Served, body: bytes) -> None:
    first = service.pay("key-1", b'{"amount":500,"currency":"RUB"}')
    again = service.pay("key-1", body)

    assert (again.status_code, again.content) == (201, first.content)
    assert service.count() == 1


@pytest.mark.rule("F2")
def test_near_equal_metadata_is_another_payment(service: Served) -> None:
    first = service.pay("key-1", b'{"amount":1,"currency":"RUB","metadata":1e400}')
    other = service.pay("key-1", b'{"amount":1,"currency":"RUB","metadata":1e401}')

    assert (first.status_code, other.status_code) == (201, 422)


def test_metadata_is_kept_as_it_came(service: Served) -> None:
    text = '{"a": [1.10, 1e400, "\\u00e9\\u0000", null], "n": 123456789012345678901234567890}'
    made = service.pay("key-1", f'{{"amount":1,"currency":"RUB","metadata":{text}}}'.encode())
    shown = service.http.get(made.headers["Location"])

    assert f'"metadata": {text}}}' in shown.text
    assert json.loads(shown.text)["amount"] == 1


@pytest.mark.rule("R2")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer nobody"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic demo-1"},
        {"Authorization": "demo-1"},
        [("Authorization", "Bearer demo-1"), ("Authorization", "Bearer demo-2")],
    ],
)
def test_without_a_token_everything_is_refused(
    service: Served, handlers: Path, headers: dict[str, str] | list[tuple[str, str]]
) -> None:
    made = service.pay("key-1")
    del service.http.headers["Authorization"]
    pairs = [*(headers if isinstance(headers, list) else headers.items())]
    answers = [
        service.http.request(method, path, headers=[*pairs, ("Idempotency-Key", "key-1")])
        for method, path in (
            ("POST", "/payments"),
            ("GET", "/payments"),
            ("GET", "/payments?count=true"),
            ("GET", made.headers["Location"]),
            ("GET", "/test/holds"),
            ("POST", "/test/holds/any/release"),
        )
    ]

    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["WWW-Authenticate"] for answer in answers} == {'Bearer realm="payments"'}
    assert {answer.headers["Content-Type"] for answer in answers} == {PROBLEM}
    assert len(lines(handlers)) == 1


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
@pytest.mark.parametrize("store", ["sqlite", "postgresql"], indirect=True)
def test_a_bad_key_is_400_and_leaves_nothing(service: Served, store: str, handlers: Path) -> None:
    answers = {name: raw_post(service, *headers) for name, headers in BAD_KEYS.items()}

    assert {name: status for name, (status, _) in answers.items()} == dict.fromkeys(BAD_KEYS, 400)
    for name, (_, text) in answers.items():
        kind = b"key-missing" if name == "missing" else b"key-malformed"
        assert b"urn:semel:problem:" + kind in text, name
        assert PROBLEM.encode() in text
    assert_nothing_left(service, store, handlers)


@pytest.mark.rule("K2")
def test_the_syntax_of_a_key_comes_before_who_calls(service: Served) -> None:
    answer = service.pay('"half', bearer="nobody")

    assert answer.status_code == 400


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
@pytest.mark.parametrize("store", ["sqlite", "postgresql"], indirect=True)
def test_a_bad_body_is_422_and_leaves_nothing(service: Served, store: str, handlers: Path) -> None:
    answers = {name: service.pay("key-1", body) for name, body in BAD_BODIES.items()}

    statuses = {name: answer.status_code for name, answer in answers.items()}
    assert statuses == dict.fromkeys(BAD_BODIES, 422)
    assert {answer.headers["Content-Type"] for answer in answers.values()} == {PROBLEM}
    assert_nothing_left(service, store, handlers)
    # The client corrects it and uses the same key.
    assert service.pay("key-1").status_code == 201


@pytest.mark.rule("F7")
@pytest.mark.parametrize("store", ["sqlite", "postgresql"], indirect=True)
def test_a_body_of_two_mebibytes_is_413(service: Served, store: str, handlers: Path) -> None:
    text = json.dumps({**PAYMENT, "metadata": "x" * 2**21})
    declared = service.pay("key-1", text.encode())
    parts = [text[at : at + 60_000].encode() for at in range(0, len(text), 60_000)]
    streamed = service.http.post(
        "/payments", content=iter(parts), headers={"Idempotency-Key": "key-1"}
    )

    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert streamed.json()["type"] == "urn:semel:problem:body-too-large"
    assert_nothing_left(service, store, handlers)


def test_what_is_not_there_is_a_problem(service: Served) -> None:
    answers = [
        service.http.get("/nothing"),
        service.http.get("/payments/pay_0"),
        service.http.delete("/payments"),
        service.http.post("/test/holds/nobody/release"),
    ]

    assert [answer.status_code for answer in answers] == [404, 404, 405, 404]
    assert {answer.headers["Content-Type"] for answer in answers} == {PROBLEM}


@pytest.mark.rule("F4")
def test_an_ignored_field_makes_no_other_request(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    with serving(store, "--ignore", "/metadata/sent_at") as service:
        first = service.pay("key-1", {**PAYMENT, "metadata": {"sent_at": 1}})
        again = service.pay("key-1", {**PAYMENT, "metadata": {"sent_at": 2}})
        other = service.pay("key-1", {**PAYMENT, "metadata": {"sent_at": 2, "more": 1}})

    assert (first.status_code, again.content, other.status_code) == (201, first.content, 422)


@pytest.mark.rule("F1")
def test_a_retry_survives_a_new_secret(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    with serving(store, "--secret", "old") as service:
        first = service.pay("key-1")
    with serving(store, "--secret", "new", "--secret", "old") as service:
        again, other = service.pay("key-1"), service.pay("key-1", {**PAYMENT, "amount": 1})
    with serving(store, "--secret", "new") as service:
        unknown = service.pay("key-1")

    assert (again.content, other.status_code) == (first.content, 422)
    assert unknown.status_code == 503


def test_clients_of_its_own_replace_those_of_the_demo(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    with serving(store, "--client", "a=token-a", "--client", "b=token=b") as service:
        answers = [service.pay("key", bearer=token) for token in ("token-a", "token=b", "demo-1")]

    assert [answer.status_code for answer in answers] == [201, 201, 401]


def assert_nothing_left(service: Served, store: str, handlers: Path) -> None:
    """No payment, no handler that ran, no claim."""
    assert service.count() == 0
    assert lines(handlers) == []
    assert json.loads(semel("keys", "list", "--json", "--store", store).stdout) == []
