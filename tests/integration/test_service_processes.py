"""The service's processes: workers that share the work, die and end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from servers import OwnPostgres
from serving import Served, replayed, semel, serving, until

KEYS = 40
TRIES = 4
WORKERS = 2


@pytest.fixture(scope="module")
def pair(store: str) -> Iterator[Served]:
    with serving(store, "--workers", "2", "--lease", "2") as served:
        yield served


def children(pid: int) -> set[int]:
    """Return the workers of a service, without Python's own resource tracker."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    found = set()
    for child in listed:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes():
                found.add(int(child))
    return found


@pytest.mark.rule("A1")
def test_two_workers_run_each_handler_once(pair: Served, key: str) -> None:
    before = pair.count()
    keys = [f"{key}-{number}" for number in range(KEYS)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(pair.pay, keys * TRIES))

    assert {answer.status_code for answer in answers} <= {201, 409}
    assert pair.count() - before == KEYS
    assert [pair.runs(one) for one in keys] == [1] * KEYS


@pytest.mark.rule("A1")
def test_fifty_at_once_with_one_key_make_one_payment(pair: Served, key: str) -> None:
    before = pair.count()
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(pair.pay, [key] * 50))

    fresh = [one for one in answers if one.status_code == 201 and not replayed(one)]
    others = [one for one in answers if one.status_code == 409 or replayed(one)]
    assert (len(fresh), len(others)) == (1, 49)
    assert {one.content for one in answers if one.status_code == 201} == {fresh[0].content}
    assert (pair.count() - before, pair.runs(key)) == (1, 1)


@pytest.mark.rule("A2")
def test_a_killed_worker_is_replaced_and_its_request_paid_once(pair: Served, key: str) -> None:
    until(lambda: len(children(pair.process.pid)) == WORKERS)
    workers, before = children(pair.process.pid), pair.count()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(pair.pay, key, fault="hold=gate")
        victim = pair.until_held("gate")
        os.kill(victim, signal.SIGKILL)
        assert isinstance(held.exception(), httpx.TransportError)
    again = pair.retry(key)
    until(lambda: len(children(pair.process.pid) - workers) == 1)

    assert victim in workers
    assert victim not in children(pair.process.pid)
    assert (again.status_code, pair.count() - before, pair.runs(key)) == (201, 1, 2)
    assert pair.holds() == []


def test_workers_do_not_outlive_their_supervisor(file: str) -> None:
    with serving(file, "--workers", "2") as first:
        until(lambda: len(children(first.process.pid)) == WORKERS)
        workers = children(first.process.pid)
        first.stop(signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
        with serving(file, port=first.port) as second:
            assert second.pay("key-1").status_code == 201


@pytest.mark.rule("O8")
def test_a_database_that_is_away_is_503_until_it_is_back(own_postgres: OwnPostgres) -> None:
    with serving(own_postgres.url, "--workers", "2") as service:
        first = service.pay("key-1")
        own_postgres.stop()
        # The workers are replaced while there is nothing to connect to.
        for worker in children(service.process.pid):
            os.kill(worker, signal.SIGKILL)
        until(lambda: answers(service))
        with ThreadPoolExecutor(3) as pool:
            fresh = pool.submit(service.pay, "key-2")
            again = pool.submit(service.pay, "key-1")
            read = pool.submit(service.http.get, "/payments")
            refused = [one.result() for one in (fresh, again, read)]
        own_postgres.start()
        fresh_after, again_after = service.retry("key-2"), service.retry("key-1")

        assert {one.status_code for one in refused} == {503}
        assert all(int(one.headers["Retry-After"]) >= 1 for one in refused)
        assert (fresh_after.status_code, replayed(fresh_after)) == (201, False)
        assert (again_after.content, replayed(again_after)) == (first.content, True)
        assert service.count() == 2


def answers(service: Served) -> bool:
    try:
        return service.http.get("/nothing").status_code == 404
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_service_ends_when_it_is_told_to(file: str, workers: str, how: signal.Signals) -> None:
    with serving(file, "--workers", workers) as service:
        service.pay("key-1")
        workers_of_it = children(service.process.pid)

        assert service.stop(how) == 0
        assert "Traceback" not in service.errors
        assert not [pid for pid in workers_of_it if Path(f"/proc/{pid}").exists()]


@pytest.mark.rule("O6")
def test_a_request_that_is_running_at_the_end_is_settled(file: str) -> None:
    with serving(file) as service, ThreadPoolExecutor(1) as pool:
        held = pool.submit(service.pay, "key-1", fault="hold=gate")
        service.until_held("gate")
        service.process.send_signal(signal.SIGTERM)
        # Nobody releases it: after the grace it is cancelled, and lets go of its key.
        assert service.process.wait(30) == 0
        held.exception()
    with serving(file) as service:
        again = service.pay("key-1")

        assert (again.status_code, replayed(again), service.count()) == (201, False, 1)


def test_a_port_in_use_is_one_line(file: str) -> None:
    with serving(file) as service:
        for workers in ("1", "2"):
            done = semel(
                "serve", "--store", file, "--port", str(service.port), "--workers", workers
            )

            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr.startswith(
                f"semel: error: can not listen on 127.0.0.1, port {service.port}"
            )
            assert done.stderr.count("\n") == 1
