"""The faults that the reference service commits when a test asks for them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from serving import Served, lines, serving


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    return str(request.getfixturevalue("pg_database"))


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    return tmp_path / "handlers.log"


@pytest.fixture
def service(store: str, handlers: Path) -> Iterator[Served]:
    with serving(store, "--lease", "2", "--handler-log", str(handlers)) as served:
        yield served


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


@pytest.mark.rule("O2", "O6")
@pytest.mark.parametrize("fault", ["fail-before", "fail-after", "status=500", "status=503"])
def test_a_failure_leaves_no_effect_and_a_retry_executes(
    service: Served, handlers: Path, fault: str
) -> None:
    failed = service.pay("key-1", fault=fault)
    left = service.count()
    again = service.pay("key-1")

    assert failed.status_code == (503 if fault == "status=503" else 500)
    assert failed.headers["Content-Type"] == "application/problem+json"
    assert left == 0
    assert (again.status_code, "Idempotent-Replayed" in again.headers) == (201, False)
    assert (service.count(), len(lines(handlers))) == (1, 2)


@pytest.mark.rule("O1", "O2")
def test_a_refusal_of_the_handler_is_stored_without_its_effect(service: Served) -> None:
    refused, again = service.pay("key-1", fault="status=402"), service.pay("key-1")

    assert (refused.status_code, again.status_code) == (402, 402)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.content == refused.content
    assert service.count() == 0


@pytest.mark.rule("O1")
@pytest.mark.parametrize(
    ("status", "stored"), [(200, True), (204, True), (303, True), (307, False)]
)
def test_other_statuses_as_the_rule_says(service: Served, status: int, *, stored: bool) -> None:
    first = service.pay("key-1", fault=f"status={status}")
    again = service.pay("key-1")

    assert first.status_code == status
    assert (again.headers.get("Idempotent-Replayed") == "true") == stored
    assert again.status_code == (status if stored else 201)


@pytest.mark.rule("R1")
def test_cookies_are_set_once_and_never_replayed(service: Served) -> None:
    first, again = service.pay("key-1", fault="set-cookie"), service.pay("key-1")

    assert len(first.headers.get_list("Set-Cookie")) == 2
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Set-Cookie" not in again.headers


@pytest.mark.parametrize(
    "header",
    [
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
    ],
)
def test_what_is_no_directive_is_400(service: Served, handlers: Path, header: str) -> None:
    answer = service.pay("key-1", fault=header)

    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert lines(handlers) == []
    assert service.pay("key-1").status_code == 201


def test_without_the_option_the_header_means_nothing(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/shop.db", faults=False) as service:
        assert service.pay("key-1", fault="nonsense").status_code == 201
        assert service.pay("key-2", fault="die").status_code == 201
        assert service.http.get("/test/holds").status_code == 404


@pytest.mark.rule("A1")
@pytest.mark.parametrize("hold", ["hold", "hold-before"])
def test_while_one_is_held_the_others_are_answered(
    service: Served, pool: ThreadPoolExecutor, handlers: Path, hold: str
) -> None:
    first = pool.submit(service.pay, "key-1", fault=f"{hold}=gate")
    service.until_held("gate")
    others = [service.pay("key-1") for _ in range(3)]
    committed = service.count()
    service.release("gate")

    assert [other.status_code for other in others] == [409, 409, 409]
    assert all(int(other.headers["Retry-After"]) >= 1 for other in others)
    assert committed == 0
    assert first.result().status_code == 201
    assert service.holds() == []
    assert (service.count(), len(lines(handlers))) == (1, 1)


@pytest.mark.rule("A9")
def test_another_key_is_not_held_up_by_a_request_before_its_effect(
    service: Served, pool: ThreadPoolExecutor
) -> None:
    first = pool.submit(service.pay, "key-1", fault="hold-before=gate")
    service.until_held("gate")
    other = service.pay("key-2")
    service.release("gate")

    assert (other.status_code, first.result().status_code) == (201, 201)


def test_a_delay_comes_after_the_effect_and_directives_follow_each_other(
    service: Served, pool: ThreadPoolExecutor
) -> None:
    waiting = pool.submit(service.pay, "key-1", fault="hold=a; delay=0.01; hold=b; status=402")
    service.until_held("a")
    service.release("a")
    service.until_held("b")
    service.release("b")

    assert waiting.result().status_code == 402


@pytest.mark.rule("A2", "A4")
def test_a_service_that_dies_between_effect_and_commit_pays_once(
    store: str, handlers: Path
) -> None:
    options = ("--lease", "2", "--handler-log", str(handlers))
    with serving(store, *options) as service:
        with pytest.raises(httpx.TransportError):
            service.pay("key-1", fault="die")
        assert service.process.wait(30) == -signal.SIGKILL
    with serving(store, *options) as service:
        again = service.retry("key-1")

        assert (again.status_code, service.count(), len(lines(handlers))) == (201, 1, 2)


def test_the_header_is_not_part_of_the_fingerprint(service: Served) -> None:
    first = service.pay("key-1", fault="delay=0")
    again = service.pay("key-1", fault="delay=0.0")

    assert (again.status_code, again.content) == (201, first.content)
