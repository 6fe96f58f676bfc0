"""The reference service as its clients see it, on every kind of store."""

from __future__ import annotations

import json

import pytest

from serving import PAYMENT, Served, replayed, serving

PROBLEM = "application/problem+json"

every_store = pytest.mark.parametrize(
    "store", ["sqlite", "postgresql", "memory"], indirect=True, scope="module"
)


@every_store
@pytest.mark.rule("A1", "R1")
def test_a_payment_is_made_once_and_replayed(service: Served, key: str) -> None:
    before = service.count()
    first, again = service.pay(key), service.pay(key)

    assert (first.status_code, again.status_code) == (201, 201)
    assert (replayed(first), replayed(again)) == (False, True)
    assert again.content == first.content
    assert again.headers["Location"] == first.headers["Location"]
    assert first.json().keys() == {"payment_id", "amount", "currency"}
    assert (service.count() - before, service.runs(key)) == (1, 1)


@every_store
@pytest.mark.rule("K4")
def test_the_same_key_of_another_client_is_another_key(service: Served, key: str) -> None:
    before = service.count()
    mine, theirs = service.pay(key), service.pay(key, bearer="demo-2")

    assert theirs.status_code == 201
    assert mine.json()["payment_id"] != theirs.json()["payment_id"]
    assert service.count() - before == 2


@every_store
def test_a_client_sees_its_own_payments_only(service: Served, key: str) -> None:
    mine, theirs = service.pay(key), service.pay(key, bearer="demo-2")

    shown = service.http.get(mine.headers["Location"])
    hidden = service.http.get(theirs.headers["Location"])
    listed = service.http.get("/payments").json()["payments"]

    assert shown.json().items() >= mine.json().items()
    assert (hidden.status_code, hidden.headers["Content-Type"]) == (404, PROBLEM)
    assert listed[0] == shown.json()
    assert theirs.json()["payment_id"] not in [one["payment_id"] for one in listed]


@every_store
@pytest.mark.rule("F5", "R3")
def test_another_payment_under_the_same_key_is_refused(service: Served, key: str) -> None:
    service.pay(key)
    before = service.count()
    other = service.pay(key, {**PAYMENT, "amount": 501})

    assert (other.status_code, other.headers["Content-Type"]) == (422, PROBLEM)
    assert other.json()["type"] == "urn:semel:problem:key-reused"
    assert (service.count() - before, service.runs(key)) == (0, 1)


@every_store
@pytest.mark.rule("F2")
def test_another_spelling_of_the_same_payment_is_a_replay(service: Served, key: str) -> None:
    first = service.pay(key, b'{"amount":500,"currency":"RUB"}')
    spellings = (
        b'{"currency": "RUB", "amount": 500}',
        b'{"amount":5e2,"currency":"RUB"}',
        b'{"amount":500.0,"currency":"\\u0052UB"}\n',
    )
    for body in spellings:
        again = service.pay(key, body)
        assert (again.status_code, again.content) == (201, first.content)
    assert service.runs(key) == 1


@every_store
@pytest.mark.rule("F2")
def test_near_equal_metadata_is_another_payment(service: Served, key: str) -> None:
    first = service.pay(key, b'{"amount":1,"currency":"RUB","metadata":1e400}')
    other = service.pay(key, b'{"amount":1,"currency":"RUB","metadata":1e401}')

    assert (first.status_code, other.status_code) == (201, 422)


@every_store
def test_metadata_is_kept_as_it_came(service: Served, key: str) -> None:
    text = '{"a": [1.10, 1e400, "\\u00e9\\u0000", null], "n": 123456789012345678901234567890}'
    made = service.pay(key, f'{{"amount":1,"currency":"RUB","metadata":{text}}}'.encode())
    shown = service.http.get(made.headers["Location"])

    assert f'"metadata": {text}}}' in shown.text
    assert json.loads(shown.text)["amount"] == 1


@every_store
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
def test_an_ignored_field_makes_no_other_request(file: str) -> None:
    with serving(file, "--ignore", "/metadata/sent_at") as own:
        first = own.pay("key-1", {**PAYMENT, "metadata": {"sent_at": 1}})
        again = own.pay("key-1", {**PAYMENT, "metadata": {"sent_at": 2}})
        other = own.pay("key-1", {**PAYMENT, "metadata": {"sent_at": 2, "more": 1}})

    assert (first.status_code, again.content, other.status_code) == (201, first.content, 422)


@pytest.mark.rule("F1")
def test_a_retry_survives_a_new_secret(file: str) -> None:
    with serving(file, "--secret", "old") as own:
        first = own.pay("key-1")
    with serving(file, "--secret", "new", "--secret", "old") as own:
        again, other = own.pay("key-1"), own.pay("key-1", {**PAYMENT, "amount": 1})
    with serving(file, "--secret", "new") as own:
        unknown = own.pay("key-1")

    assert (again.content, other.status_code) == (first.content, 422)
    assert unknown.status_code == 503


@pytest.mark.rule("K4")
def test_clients_of_its_own_replace_those_of_the_demo(file: str) -> None:
    with serving(file, "--client", "a=word-a", "--client", "b=word=b") as own:
        answers = [own.pay("key", bearer=bearer) for bearer in ("word-a", "word=b", "demo-1")]

    assert [answer.status_code for answer in answers] == [201, 201, 401]
