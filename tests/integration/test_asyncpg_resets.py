"""The reset of asyncpg's pool travels with the claim's COMMIT, and is never left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from guarding import ANSWER
from semel.asyncpg import AsyncStore
from semel.asyncpg.inside import ADOPTS, spares_resets
from semel.claim import AsyncClaim
from semel.core.fingerprint import RequestImage
from semel.core.model import Answer
from semel.errors import CommitFailedError
from semel.guard import AsyncGuard, restore
from servers import OwnPostgres

TABLE = "CREATE TABLE effect (what text UNIQUE DEFERRABLE INITIALLY DEFERRED)"
INSERT = "INSERT INTO effect (what) VALUES ($1)"
APPLICATION = "semel-resets"
IMAGE = RequestImage("POST", "/pay", b"", (), b"500")


@asynccontextmanager
async def guarded(url: str, **settings: Any) -> AsyncIterator[AsyncGuard[Any]]:
    """Open a guard on a pool of one connection: whoever comes next gets the same."""
    async with asyncpg.create_pool(url, min_size=1, max_size=1, **settings) as pool:
        store = AsyncStore(pool)
        await store.migrate()
        await pool.execute(TABLE)
        yield AsyncGuard(store)


async def claim(guard: AsyncGuard[Any], key: str) -> AsyncClaim[Any]:
    restore(None)
    found = await guard.acquire("shop", key, guard.fingerprint(IMAGE))
    assert isinstance(found, AsyncClaim)
    return found


async def leave_traces(connection: Any) -> None:
    await connection.execute("SET search_path = nowhere")
    await connection.execute("SELECT pg_advisory_lock(7)")
    await connection.execute("DECLARE held CURSOR WITH HOLD FOR SELECT 1")
    await connection.execute("LISTEN something")
    await connection.execute("SET search_path = public")
    await connection.execute("SET statement_timeout = '77s'")


async def traces(pool: Any) -> list[object]:
    async with pool.acquire() as connection:
        return [
            await connection.fetchval(
                "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND objid = 7"
            ),
            await connection.fetchval("SELECT count(*) FROM pg_cursors WHERE name = 'held'"),
            await connection.fetchval("SELECT count(*) FROM pg_listening_channels()"),
            await connection.fetchval("SHOW statement_timeout"),
        ]


@pytest.mark.rule("S2")
@pytest.mark.parametrize("end", ["complete", "refuse", "fail", "release"])
async def test_nothing_of_a_handler_is_found_by_the_next(pg_database: str, end: str) -> None:
    assert ADOPTS
    async with guarded(pg_database) as guard:
        pool = guard.store.pool  # type: ignore[attr-defined]
        assert spares_resets(pool)
        clean = await traces(pool)
        for number in range(3):
            held = await claim(guard, f"{number}")
            await leave_traces(held.tx)
            if end == "release":
                await held.release()
            elif end == "fail":
                await held.tx.execute(INSERT, "twice")
                await held.tx.execute(INSERT, "twice")
                with pytest.raises(CommitFailedError):
                    await held.complete(ANSWER)
            else:
                await held.complete(ANSWER if end == "complete" else Answer(422, (), b"no"))
            assert await traces(pool) == clean


@pytest.mark.rule("S2")
async def test_what_the_application_does_itself_is_reset_as_always(pg_database: str) -> None:
    """A reset is spared once: for the claim that had it, not for whoever comes next."""
    async with guarded(pg_database) as guard:
        pool = guard.store.pool  # type: ignore[attr-defined]
        clean = await traces(pool)
        for number in range(2):
            await (await claim(guard, f"{number}")).complete(ANSWER)
            async with pool.acquire() as connection:
                await leave_traces(connection)
            assert await traces(pool) == clean


@pytest.mark.rule("A3")
async def test_a_request_takes_four_round_trips(own_postgres: OwnPostgres) -> None:
    """Its own statement among them; bare, with the pool's reset, it takes as many."""
    own_postgres.set(log_statement="all")
    url = f"{own_postgres.url}?application_name={APPLICATION}"
    async with guarded(url) as guard:
        await (await claim(guard, "before")).complete(ANSWER)
        seen = len(own_postgres.statements(APPLICATION))
        held = await claim(guard, "k")
        await held.tx.execute(INSERT, "paid")
        await held.complete(ANSWER)
        sent = own_postgres.statements(APPLICATION)[seen:]
        await guard.acquire("shop", "k", guard.fingerprint(IMAGE))
        guard._remembered._identities.clear()
        await guard.acquire("shop", "k", guard.fingerprint(IMAGE))
        repeats = own_postgres.statements(APPLICATION)[seen + len(sent) :]
    # A repeat leaves nothing to reset: Semel's own statements touch no setting that stays.
    assert [text[:8] for text in repeats] == ["SELECT c", "BEGIN;EX", "SELECT c", "ROLLBACK"]
    starts = ["BEGIN;EXECUTE", "INSERT INTO effect", "WITH completed", "COMMIT;SELECT"]
    assert [text.startswith(start) for text, start in zip(sent, starts, strict=True)] == [True] * 4


@pytest.mark.rule("S2")
async def test_an_own_reset_is_the_applications_business(pg_database: str) -> None:
    done = []

    async def reset(connection: Any) -> None:
        done.append(await connection.fetchval("SHOW statement_timeout"))
        await connection.execute("RESET ALL")

    async with guarded(pg_database, reset=reset) as guard:
        assert not spares_resets(guard.store.pool)  # type: ignore[attr-defined]
        held = await claim(guard, "k")
        await held.tx.execute("SET statement_timeout = '77s'")
        await held.complete(ANSWER)
        assert done[-1] == "77s"


@pytest.mark.rule("S2", "A1")
async def test_many_at_once_share_the_one_connection(pg_database: str) -> None:
    async with guarded(pg_database) as guard:

        async def one(number: int) -> None:
            held = await claim(guard, f"{number}")
            assert await held.tx.fetchval("SHOW statement_timeout") == "0"
            await held.tx.execute("SET statement_timeout = '77s'")
            await held.tx.execute(INSERT, f"{number}")
            await held.complete(ANSWER)

        await asyncio.gather(*map(one, range(50)))
        pool = guard.store.pool  # type: ignore[attr-defined]
        assert await pool.fetchval("SELECT count(*) FROM effect") == 50
