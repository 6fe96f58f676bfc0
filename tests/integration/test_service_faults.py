"""The faults that the reference service commits when a test asks for them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from serving import PAYMENT, Served, replayed, serving


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.mark.rule("O2", "O6")
@pytest.mark.parametrize("fault", ["fail-before", "fail-after", "status=500", "status=503"])
def test_a_failure_leaves_no_effect_and_a_retry_executes(
    service: Served, key: str, fault: str
) -> None:
    before = service.count()
    failed = service.pay(key, fault=fault)
    left = service.count() - before
    again = service.pay(key)

    assert failed.status_code == (503 if fault == "status=503" else 500)
    assert failed.headers["Content-Type"] == "application/problem+json"
    assert left == 0
    assert (again.status_code, replayed(again)) == (201, False)
    assert (service.count() - before, service.runs(key)) == (1, 2)


@pytest.mark.rule("O1", "O2")
def test_a_refusal_of_the_handler_is_stored_without_its_effect(service: Served, key: str) -> None:
    before = service.count()
    refused, again = service.pay(key, fault="status=402"), service.pay(key)

    assert (refused.status_code, again.status_code) == (402, 402)
    assert (replayed(again), again.content) == (True, refused.content)
    assert service.count() == before


@pytest.mark.rule("O1")
@pytest.mark.parametrize(("status", "again"), [(200, 200), (204, 204), (303, 303), (307, 201)])
def test_other_statuses_as_the_rule_says(
    service: Served, key: str, status: int, again: int
) -> None:
    first, second = service.pay(key, fault=f"status={status}"), service.pay(key)

    assert (first.status_code, second.status_code) == (status, again)
    assert replayed(second) == (status == again)


@pytest.mark.rule("R1")
def test_cookies_are_set_once_and_never_replayed(service: Served, key: str) -> None:
    first, again = service.pay(key, fault="set-cookie"), service.pay(key)

    assert len(first.headers.get_list("Set-Cookie")) == 2
    assert replayed(again)
    assert "Set-Cookie" not in again.headers


def test_without_the_option_the_header_means_nothing(file: str) -> None:
    with serving(file, faults=False) as own:
        assert own.pay("key-1", fault="nonsense").status_code == 201
        assert own.pay("key-2", fault="die").status_code == 201
        assert own.http.get("/test/holds").status_code == 404
        assert own.http.post("/test/payments", json=PAYMENT).status_code == 404


@pytest.mark.rule("F1")
def test_a_key_belongs_to_one_address(service: Served, key: str) -> None:
    first = service.pay(key)
    elsewhere = service.http.post("/test/payments", headers={"Idempotency-Key": key}, json=PAYMENT)

    assert (first.status_code, elsewhere.status_code) == (201, 422)
    assert service.runs(key) == 1


@pytest.mark.rule("A1")
@pytest.mark.parametrize("hold", ["hold", "hold-before"])
def test_while_one_is_held_the_others_are_answered(
    service: Served, key: str, pool: ThreadPoolExecutor, hold: str
) -> None:
    before = service.count()
    first = pool.submit(service.pay, key, fault=f"{hold}=gate")
    service.until_held("gate")
    others = [service.pay(key) for _ in range(3)]
    committed = service.count() - before
    service.release("gate")

    assert [other.status_code for other in others] == [409, 409, 409]
    assert all(int(other.headers["Retry-After"]) >= 1 for other in others)
    assert committed == 0
    assert first.result().status_code == 201
    assert service.holds() == []
    assert (service.count() - before, service.runs(key)) == (1, 1)


@pytest.mark.rule("A9")
def test_another_key_is_not_held_up_by_a_request_before_its_effect(
    service: Served, key: str, pool: ThreadPoolExecutor
) -> None:
    first = pool.submit(service.pay, key, fault="hold-before=gate")
    service.until_held("gate")
    other = service.pay(f"{key}-2")
    service.release("gate")

    assert (other.status_code, first.result().status_code) == (201, 201)


def test_a_delay_comes_after_the_effect_and_directives_follow_each_other(
    service: Served, key: str, pool: ThreadPoolExecutor
) -> None:
    fault = "hold=a; delay=0.01; hold=b; status=402"
    waiting = pool.submit(service.pay, key, fault=fault)
    service.until_held("a")
    service.release("a")
    service.until_held("b")
    service.release("b")

    assert waiting.result().status_code == 402


def test_the_header_is_not_part_of_the_fingerprint(service: Served, key: str) -> None:
    first, again = service.pay(key, fault="delay=0"), service.pay(key, fault="delay=0.0")

    assert (again.status_code, again.content) == (201, first.content)


@pytest.mark.rule("A2", "A4")
def test_a_service_that_dies_between_effect_and_commit_pays_once(store: str, key: str) -> None:
    with serving(store, "--lease", "2") as own:
        before = own.count()
        with pytest.raises(httpx.TransportError):
            own.pay(key, fault="die")
        assert own.process.wait(30) == -signal.SIGKILL
        assert own.runs(key) == 1
    with serving(store, "--lease", "2") as own:
        again = own.retry(key)

        assert (again.status_code, own.count() - before, own.runs(key)) == (201, 1, 1)
