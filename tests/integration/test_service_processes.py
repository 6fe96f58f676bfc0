"""The service's processes: workers that share the work, die and end."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from serving import Served, lines, semel, serving, until

KEYS = 40
TRIES = 4


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    return str(request.getfixturevalue("pg_database"))


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    return tmp_path / "handlers.log"


@pytest.fixture
def pair(store: str, handlers: Path) -> Iterator[Served]:
    with serving(store, "--workers", "2", "--handler-log", str(handlers)) as service:
        yield service


def children(pid: int) -> set[int]:
    """Return the workers of a service, without Python's own resource tracker."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    found = set()
    for child in listed:
        with suppress(FileNotFoundError):  # it has just ended
            if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes():
                found.add(int(child))
    return found


@pytest.mark.rule("A1")
def test_two_workers_run_each_handler_once(pair: Served, handlers: Path) -> None:
    keys = [f"key-{number}" for number in range(KEYS)] * TRIES
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(pair.pay, keys))

    assert {answer.status_code for answer in answers} <= {201, 409}
    assert pair.count() == KEYS
    assert set(Counter(lines(handlers)).values()) == {1}
    assert len(lines(handlers)) == KEYS


@pytest.mark.rule("A1")
def test_fifty_at_once_with_one_key_make_one_payment(pair: Served, handlers: Path) -> None:
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(pair.pay, ["key"] * 50))

    fresh = [one for one in answers if one.status_code == 201 and not replayed(one)]
    others = [one for one in answers if one.status_code == 409 or replayed(one)]
    assert (len(fresh), len(others)) == (1, 49)
    assert {one.content for one in answers if one.status_code == 201} == {fresh[0].content}
    assert (pair.count(), len(lines(handlers))) == (1, 1)


def replayed(answer: httpx.Response) -> bool:
    return bool(answer.headers.get("Idempotent-Replayed") == "true")


@pytest.mark.rule("A2")
def test_a_killed_worker_is_replaced_and_its_request_paid_once(store: str, handlers: Path) -> None:
    options = ("--workers", "2", "--lease", "2", "--handler-log", str(handlers))
    with serving(store, *options) as service, ThreadPoolExecutor(1) as pool:
        until(lambda: len(children(service.process.pid)) == 2)
        before = children(service.process.pid)
        held = pool.submit(service.pay, "key-1", fault="hold=gate")
        victim = service.until_held("gate")
        os.kill(victim, signal.SIGKILL)
        assert isinstance(held.exception(), httpx.TransportError)
        again = service.retry("key-1")
        until(lambda: len(children(service.process.pid) - before) == 1)

        assert victim in before
        assert victim not in children(service.process.pid)
        assert (again.status_code, service.count(), len(lines(handlers))) == (201, 1, 2)
        assert service.holds() == []


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_service_ends_when_it_is_told_to(
    tmp_path: Path, workers: str, how: signal.Signals
) -> None:
    with serving(f"sqlite:///{tmp_path}/shop.db", "--workers", workers) as service:
        service.pay("key-1")
        workers_of_it = children(service.process.pid)

        assert service.stop(how) == 0
        assert "Traceback" not in service.errors
        assert not [pid for pid in workers_of_it if Path(f"/proc/{pid}").exists()]


@pytest.mark.rule("O6")
def test_a_request_that_is_running_at_the_end_is_settled(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    with serving(store) as service, ThreadPoolExecutor(1) as pool:
        held = pool.submit(service.pay, "key-1", fault="hold=gate")
        service.until_held("gate")
        service.process.send_signal(signal.SIGTERM)
        # Nobody releases it: after the grace it is cancelled, and lets go of its key.
        assert service.process.wait(30) == 0
        held.exception()
    with serving(store) as service:
        again = service.pay("key-1")

        assert (again.status_code, replayed(again), service.count()) == (201, False, 1)


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    with serving(store) as service:
        for workers in ("1", "2"):
            done = semel(
                "serve", "--store", store, "--port", str(service.port), "--workers", workers
            )

            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr.startswith(
                f"semel: error: can not listen on 127.0.0.1, port {service.port}"
            )
            assert done.stderr.count("\n") == 1
