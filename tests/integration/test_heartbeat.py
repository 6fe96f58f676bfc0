"""The heartbeat (rule A4), on a real PostgreSQL and in real time."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from guarding import ANSWER, Shop, pay, shop
from semel.core.model import Identity, InFlight, Mode
from semel.errors import CommitFailedError, StoreUnavailableError
from semel.events import Event
from semel.heartbeat import Heartbeat
from semel.store.protocol import Link
from semel.store.statement import Rows, Statement
from semel.store.values import Held

LEASE = 0.6


async def until(condition: str, opened: Shop) -> None:
    """Wait until the database says so."""
    give_up = time.monotonic() + 20
    while await opened.query(f"SELECT {condition} FROM semel_claim") != [(True,)]:
        assert time.monotonic() < give_up
        await asyncio.sleep(0.02)


@pytest.mark.rule("A4")
async def test_a_blocked_loop_and_an_exhausted_pool_lose_nothing(pg_database: str) -> None:
    async with shop(pg_database, mode=Mode.JOINED, lease=LEASE) as opened:
        claim = await opened.claim("k")
        await pay(claim)
        pool = opened.guard.store.pool  # type: ignore[attr-defined]
        taken = [await pool.getconn() for _ in range(pool.max_size - 1)]
        (before,) = (await opened.query("SELECT lease_expires_at FROM semel_claim"))[0]
        with psycopg.connect(pg_database, autocommit=True) as outside:
            # This loop is blocked for three leases, on purpose.
            outside.execute("SELECT pg_sleep(%s)", [LEASE * 3])
            row = outside.execute(
                "SELECT lease_expires_at > clock_timestamp(), lease_expires_at > %s "
                "FROM semel_claim",
                [before],
            ).fetchone()
        assert row == (True, True)
        for connection in taken:
            await pool.putconn(connection)
        assert isinstance(await opened.acquire("k"), InFlight)
        assert not claim.lost
        await claim.complete(ANSWER)
        assert await opened.effects() == ["paid"]


@pytest.mark.rule("A4")
async def test_a_lost_lease_is_visible_and_its_effect_is_rolled_back(pg_database: str) -> None:
    async with shop(pg_database, mode=Mode.JOINED, lease=LEASE) as opened:
        claim = await opened.claim("k")
        await pay(claim, "of the first owner")
        # Another owner has taken the row over.
        await opened.query(
            "WITH u AS (UPDATE semel_claim SET owner = 'another', token = token + 1 RETURNING 1) "
            "SELECT * FROM u"
        )
        give_up = time.monotonic() + 20
        while not claim.lost:
            assert time.monotonic() < give_up
            await asyncio.sleep(0.02)
        with pytest.raises(CommitFailedError):
            await claim.complete(ANSWER)
        assert await opened.effects() == []
        assert "claim-lost" in opened.names()


@pytest.mark.rule("A4")
async def test_a_dead_connection_is_replaced_at_the_next_beat(pg_database: str) -> None:
    async with shop(pg_database, mode=Mode.JOINED, lease=LEASE) as opened:
        claim = await opened.claim("k")
        (before,) = (await opened.query("SELECT lease_expires_at FROM semel_claim"))[0]
        await until(f"lease_expires_at > '{before}'", opened)
        killed = await opened.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query ~ 'lease_expires_at = coalesce' "
            "AND pid <> pg_backend_pid()"
        )
        assert killed == [(True,)]
        (before,) = (await opened.query("SELECT lease_expires_at FROM semel_claim"))[0]
        await until(f"lease_expires_at > '{before}'", opened)
        assert not claim.lost
        await claim.release()


class Beats:
    """A connection that counts renewals and fails the first few."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.opened = 0
        self.renewed: list[list[bytes]] = []
        self.beat = threading.Semaphore(0)

    @contextmanager
    def __call__(self) -> Iterator[Link]:
        self.opened += 1

        def run(statement: Statement) -> Rows:
            assert statement.name == "claim_renew"
            owners = list(statement.params["owners"])
            if self.failures:
                self.failures -= 1
                raise StoreUnavailableError("gone")
            self.renewed.append(owners)
            self.beat.release()
            return [(owner,) for owner in owners]

        yield run


def held(owner: bytes) -> Held:
    return Held(Identity(b"scope", b"key"), owner, 60.0)


def never() -> None:
    raise AssertionError


@pytest.mark.rule("A4")
def test_failed_renewals_do_not_end_it() -> None:
    beats, events = Beats(failures=3), list[Event]()
    heartbeat = Heartbeat(beats, events.append)
    heartbeat.keep(held(b"a"), 0.03, never)
    assert beats.beat.acquire(timeout=20)
    heartbeat.stop()
    assert [event.name for event in events] == ["renewal-failed"] * 3
    assert beats.opened == 4


@pytest.mark.rule("A4")
def test_one_statement_renews_all_claims_and_new_ones_put_nothing_off() -> None:
    beats = Beats(failures=0)
    heartbeat = Heartbeat(beats, None)
    heartbeat.keep(held(b"a"), 0.3, never)
    started = time.monotonic()
    number = 0
    while not beats.renewed:
        # New claims all the time, much faster than a third of the lease.
        heartbeat.keep(held(b"b%d" % number), 0.3, never)
        number += 1
        assert time.monotonic() < started + 20
        time.sleep(0.005)  # how fast they come is the point here
    heartbeat.stop()
    assert b"a" in beats.renewed[0]
    assert len(beats.renewed[0]) > 2
    assert beats.opened == 1


@pytest.mark.rule("A4")
@pytest.mark.parametrize("before", ["kept", "dropped"])
def test_a_short_lease_is_renewed_in_time_after_a_long_one(before: str) -> None:
    beats = Beats(failures=0)
    heartbeat = Heartbeat(beats, None)
    first = held(b"long")
    heartbeat.keep(first, 3600, never)
    while heartbeat._asleep_until == math.inf:
        time.sleep(0.001)  # until it waits for the long one's beat
    if before == "dropped":
        heartbeat.drop(first)
    heartbeat.keep(held(b"short"), 0.03, never)
    assert beats.beat.acquire(timeout=20)
    heartbeat.stop()
    assert b"short" in beats.renewed[0]


@pytest.mark.rule("A4")
def test_claims_that_come_and_go_do_not_keep_the_last_from_being_renewed() -> None:
    beats = Beats(failures=0)
    heartbeat = Heartbeat(beats, None)
    for number in range(1000):
        each = held(b"%d" % number)
        heartbeat.keep(each, 0.3, never)
        heartbeat.drop(each)
    heartbeat.keep(held(b"last"), 0.3, never)
    assert beats.beat.acquire(timeout=20)
    heartbeat.stop()
    assert beats.renewed[0] == [b"last"]


@pytest.mark.rule("A4")
def test_a_dropped_claim_is_not_renewed_and_the_thread_can_end_and_begin_again() -> None:
    beats = Beats(failures=0)
    heartbeat = Heartbeat(beats, None)
    heartbeat.keep(held(b"a"), 0.03, never)
    heartbeat.keep(held(b"b"), 0.03, never)
    assert beats.beat.acquire(timeout=20)
    heartbeat.drop(held(b"a"))
    seen = len(beats.renewed)
    while len(beats.renewed) < seen + 3:
        assert beats.beat.acquire(timeout=20)
    assert beats.renewed[-1] == [b"b"]
    heartbeat.stop()
    heartbeat.stop()
    heartbeat.keep(held(b"c"), 0.03, never)
    while beats.renewed[-1] != [b"c"]:
        assert beats.beat.acquire(timeout=20)
    heartbeat.stop()


@pytest.mark.rule("A4")
def test_a_forked_process_starts_a_heartbeat_of_its_own() -> None:
    beats = Beats(failures=0)
    heartbeat = Heartbeat(beats, None)
    heartbeat.keep(held(b"parent"), 30.0, never)
    child = os.fork()
    if child == 0:  # only os._exit leaves here
        heartbeat.keep(held(b"child"), 0.03, never)
        beat = beats.beat.acquire(timeout=20)
        os._exit(0 if beat and beats.renewed[0] == [b"child"] else 1)
    _, status = os.waitpid(child, 0)
    heartbeat.stop()
    assert os.waitstatus_to_exitcode(status) == 0
