"""Faults between effect and commit: real processes, a PostgreSQL of the test's own.

Each test holds the request inside its handler, after the effect's statement and
before the answer, shows from the database that it struck there, and then counts.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import psycopg
import pytest

from servers import OwnPostgres
from serving import Served, digest, replayed, serving, until

MODES = ["atomic", "joined"]
# Seconds: short, so that tests that have to outlast them do not take long.
LEASE, IDLE_TIMEOUT = "1", "1.5"


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with OwnPostgres() as running:
        running.set(log_statement="mod", log_line_prefix="[%p] ")
        yield running


@dataclass
class Held:
    """A request that waits inside its handler, after its effect."""

    process: int
    thread: threading.Thread
    answers: list[httpx.Response | httpx.TransportError] = field(default_factory=list)


@contextmanager
def held(service: Served, key: str) -> Iterator[Held]:
    """Send a request that stays between effect and commit."""
    answers: list[httpx.Response | httpx.TransportError] = []

    def send() -> None:
        try:
            answers.append(service.pay(key, fault=f"hold={key}"))
        except httpx.TransportError as error:
            answers.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield Held(service.until_held(key), thread, answers)
    finally:
        thread.join(60)
        assert not thread.is_alive()


def query(server: OwnPostgres, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        return connection.execute(sql.encode(), values).fetchall()


def owner_backend(server: OwnPostgres) -> int:
    """Return the backend that sits in an open transaction after the payment's insert."""

    def find() -> list[tuple[Any, ...]]:
        return query(
            server,
            "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction' "
            "AND query ~* 'insert into payment'",
        )

    return int(until(find)[0][0])


def nothing_stuck(server: OwnPostgres) -> None:
    """Every claim is settled, no transaction is left open."""
    assert query(server, "SELECT count(*) FROM semel_claim WHERE status = 0") == [(0,)]
    until(
        lambda: (
            query(
                server,
                "SELECT count(*) FROM pg_stat_activity WHERE state ~ '^idle in transaction'",
            )
            == [(0,)]
        )
    )


def paid_once(service: Served, server: OwnPostgres, key: str, *, runs: int) -> None:
    """Retry as a client would: one payment, then its replay; count handlers and rows."""
    first = retry(service, key)
    assert first.status_code == 201, first.text
    again = service.pay(key)
    assert again.status_code == 201
    assert replayed(again)
    assert again.content == first.content
    assert service.runs(key) == runs
    rows = query(server, "SELECT count(*) FROM payment WHERE id = %s", first.json()["payment_id"])
    assert rows == [(1,)]


def retry(service: Served, key: str) -> httpx.Response:
    """Post until the answer is final; a server that is restarting is asked again."""
    give_up = time.monotonic() + 60
    while True:
        assert time.monotonic() < give_up
        try:
            answer = service.pay(key)
        except httpx.TransportError:
            continue
        if "Retry-After" not in answer.headers:
            return answer
        time.sleep(min(1.0, float(answer.headers["Retry-After"])))


def payments(server: OwnPostgres) -> int:
    return int(query(server, "SELECT count(*) FROM payment")[0][0])


@contextmanager
def running(server: OwnPostgres, mode: str, *options: str) -> Iterator[Served]:
    with serving(
        server.url, "--mode", mode, "--lease", LEASE, "--idle-timeout", IDLE_TIMEOUT, *options
    ) as service:
        yield service


@pytest.mark.rule("A2", "O4")
@pytest.mark.parametrize("mode", MODES)
def test_kill_9_between_effect_and_commit(server: OwnPostgres, mode: str) -> None:
    key = uuid.uuid4().hex
    with running(server, mode) as service:
        before = payments(server)
        with held(service, key) as request:
            owner_backend(server)  # the effect is written, not committed
            os.kill(request.process, signal.SIGKILL)
        assert isinstance(request.answers[0], httpx.TransportError)
        assert service.runs(key) == 1
        assert payments(server) == before
    with running(server, mode) as service:
        paid_once(service, server, key, runs=1)  # of the new process
        assert payments(server) == before + 1
        nothing_stuck(server)


@pytest.mark.rule("A2", "A4")
@pytest.mark.parametrize("mode", MODES)
def test_a_frozen_process_loses_its_transaction_and_changes_nothing(
    server: OwnPostgres, mode: str
) -> None:
    key = uuid.uuid4().hex
    with running(server, mode) as frozen, running(server, mode) as other:
        before = payments(server)
        with held(frozen, key) as request:
            backend = owner_backend(server)
            os.kill(request.process, signal.SIGSTOP)
            try:
                paid_once(other, server, key, runs=1)
                if mode == "atomic":
                    # Its lock was only freed by the end of its transaction.
                    assert f"[{backend}] FATAL:  terminating connection" in server.log_text()
            finally:
                os.kill(request.process, signal.SIGCONT)
            frozen.release(key)
        (answer,) = request.answers
        assert isinstance(answer, httpx.Response)
        # It wakes, can not commit, and answers what the other one did.
        assert answer.status_code == 201
        assert replayed(answer)
        assert frozen.runs(key) == 1
        assert payments(server) == before + 1
        nothing_stuck(server)


@pytest.mark.rule("A6", "O4")
@pytest.mark.parametrize("mode", MODES)
def test_a_terminated_backend(server: OwnPostgres, mode: str) -> None:
    key = uuid.uuid4().hex
    with running(server, mode, "--idle-timeout", "60") as service:
        before = payments(server)
        with held(service, key) as request:
            backend = owner_backend(server)
            assert query(server, "SELECT pg_terminate_backend(%s)", backend) == [(True,)]
            until(lambda: f"[{backend}] FATAL:  terminating" in server.log_text())
            service.release(key)
        (answer,) = request.answers
        assert isinstance(answer, httpx.Response)
        assert answer.status_code == 503
        assert answer.json()["type"] == "urn:semel:problem:store-unavailable"
        assert payments(server) == before
        paid_once(service, server, key, runs=2)
        assert payments(server) == before + 1
        nothing_stuck(server)
        assert "Traceback" not in service.errors


@pytest.mark.rule("A6", "O4", "O8")
@pytest.mark.parametrize("mode", MODES)
def test_an_immediate_restart_of_the_database(mode: str, own_postgres: OwnPostgres) -> None:
    server, key = own_postgres, uuid.uuid4().hex
    with running(server, mode, "--idle-timeout", "60") as service:
        with held(service, key) as request:
            owner_backend(server)
            server.stop("immediate")
            refused = service.pay(uuid.uuid4().hex)
            assert refused.status_code == 503  # fails closed, before the handler
            server.start()
            assert "database system was not properly shut down" in server.log_text()
            service.release(key)
        (answer,) = request.answers
        assert isinstance(answer, httpx.Response)
        assert answer.status_code == 503
        assert payments(server) == 0
        paid_once(service, server, key, runs=2)
        assert payments(server) == 1
        nothing_stuck(server)
        assert "Traceback" not in service.errors


@pytest.mark.rule("O4", "R1")
@pytest.mark.parametrize("mode", MODES)
def test_a_lost_answer_is_replayed(server: OwnPostgres, mode: str) -> None:
    key = uuid.uuid4().hex
    with running(server, mode) as service:
        before = payments(server)
        with httpx.Client(base_url=service.url, trust_env=False, timeout=0.2) as impatient:
            headers = {
                "Authorization": "Bearer demo-1",
                "Idempotency-Key": key,
                "X-Semel-Test": f"hold={key}",
            }
            with pytest.raises(httpx.ReadTimeout):
                impatient.post(
                    "/payments", json={"amount": 500, "currency": "RUB"}, headers=headers
                )
        service.until_held(key)  # the client is gone, the handler runs
        service.release(key)
        until(lambda: payments(server) == before + 1)
        answer = retry(service, key)
        assert replayed(answer)
        assert service.runs(key) == 1
        assert payments(server) == before + 1


@pytest.mark.rule("A1")
@pytest.mark.parametrize("mode", MODES)
def test_many_keys_over_two_workers_run_each_handler_once(server: OwnPostgres, mode: str) -> None:
    connections, keys = 16, [uuid.uuid4().hex for _ in range(400)]
    statuses: list[int] = []
    # Each key is sent by two of the connections at about the same time.
    queues = [iter(keys[(number // 2) :: connections // 2]) for number in range(connections)]
    with running(server, mode, "--workers", "2") as service:
        before = payments(server)

        def send(mine: Iterator[str]) -> None:
            with httpx.Client(
                base_url=service.url,
                headers={"Authorization": "Bearer demo-1"},
                trust_env=False,
                timeout=60,
            ) as client:
                for key in mine:
                    answer = client.post(
                        "/payments",
                        json={"amount": 500, "currency": "RUB"},
                        headers={"Idempotency-Key": key},
                    )
                    statuses.append(answer.status_code)

        run_all([partial(send, mine) for mine in queues])
        assert len(statuses) == 2 * len(keys)
        assert set(statuses) <= {201, 409}
        started = service.handlers()
        assert len(started) == len(set(started)) == len(keys)
        assert set(started) == {digest(key) for key in keys}
        assert payments(server) == before + len(keys)


def run_all(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
