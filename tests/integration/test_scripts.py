"""Scripts: a fresh key in one round trip, and every way on which that does not work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cache
from typing import TypeVar

import asyncpg
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarding import ANSWER, Shop, pay, shop
from semel.asyncpg import AsyncStore
from semel.claim import AsyncClaim
from semel.core.fingerprint import RequestImage
from semel.core.model import Execute, Mode, Replay
from semel.guard import AsyncGuard
from semel.store.render import literal
from semel.store.statement import Rows, Statement, Steps
from semel.testing.driving import Attempt, new_claim, wrapped

T = TypeVar("T")


@pytest.fixture
async def opened(pg_database: str) -> AsyncIterator[Shop]:
    async with shop(pg_database) as open_shop:
        yield open_shop


@pytest.mark.rule("A3", "A6")
async def test_connections_that_forget_their_statements_are_taught_again(opened: Shop) -> None:
    for key in ("first", "second", "third"):
        claim = await opened.claim(key)
        await pay(claim, key)
        await claim.complete(ANSWER)
        # Whatever a pooler or an application does between two requests.
        async with opened.guard.store.pool.connection() as connection:  # type: ignore[attr-defined]
            await connection.execute("DEALLOCATE ALL")
    assert await opened.effects() == ["first", "second", "third"]
    assert [await opened.acquire(key) for key in ("first", "third")] == [Replay(ANSWER)] * 2


@pytest.mark.rule("A3", "A6")
async def test_sessions_that_knew_the_statements_before(pg_database: str) -> None:
    """A pooler lends a session that another process has taught."""
    async with await psycopg.AsyncConnection.connect(pg_database, autocommit=True) as admin:
        await admin.execute("CREATE TABLE effect (what text)")
    pool = await asyncpg.create_pool(pg_database, min_size=1, max_size=1)
    async with pool:
        await AsyncStore(pool).migrate()
        for number in range(3):  # each store starts without knowledge of the one session
            guard = AsyncGuard(AsyncStore(pool))
            image = RequestImage("POST", "/pay", b"", (), b"500")
            claim = await guard.acquire("shop", f"{number}", guard.fingerprint(image))
            assert isinstance(claim, AsyncClaim)
            await claim.tx.execute("INSERT INTO effect (what) VALUES ($1)", f"{number}")
            await claim.complete(ANSWER)
        assert await pool.fetchval("SELECT count(*) FROM effect") == 3
        assert await pool.fetchval("SELECT count(*) FROM semel_claim WHERE status = 1") == 3


@pytest.mark.rule("A1", "A2")
async def test_a_rival_that_lets_go_in_the_middle_leaves_a_claim_that_can_be_completed(
    opened: Shop,
) -> None:
    """Its lock is held for `claim_open` and free for `claim_lock`, which has to prove then."""
    store = opened.guard.store
    joined = Attempt(store, new_claim("k", mode=Mode.JOINED))
    await joined.acquire()
    await joined.roll_back()
    attempt = Attempt(store, new_claim("k", mode=Mode.ATOMIC))
    asked = []
    with psycopg.connect(opened.url) as rival:
        rival.execute("SELECT pg_advisory_xact_lock(%s)", [attempt.new.lock])

        def let_go(statement: Statement) -> Steps[Rows]:
            asked.append(statement.name)
            if statement.name == "claim_lock":
                rival.rollback()
            return (yield statement)

        def watched(steps: Steps[T], /) -> Steps[T]:
            return wrapped(steps, let_go)

        assert await attempt.acquire(watched) == Execute(token=2)
    assert asked[-4:] == ["claim_look", "claim_lock", "claim_take", "savepoint"]
    await attempt.settle()
    assert await opened.query("SELECT status FROM semel_claim WHERE token = 2") == [(1,)]


@pytest.mark.rule("A3")
@settings(deadline=None, max_examples=200)
@given(
    st.none()
    | st.binary(max_size=40)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
)
def test_a_literal_is_read_as_the_value(
    postgres_url: str, value: bytes | float | str | None
) -> None:
    """Whatever the server takes backslashes for."""
    kind = {bytes: "bytea", int: "bigint", float: "float8"}.get(type(value), "text")
    connection = _connected(postgres_url)
    for setting in ("on", "off"):
        connection.execute(f"SET standard_conforming_strings = {setting}".encode())
        shown = connection.execute(f"SELECT CAST({literal(value)} AS {kind})".encode())
        assert shown.fetchall() == [(value,)]


@pytest.mark.rule("A3")
@pytest.mark.parametrize("value", ["a\0b", float("inf"), float("nan"), ["a"]])
def test_no_other_value_gets_into_a_script(value: object) -> None:
    with pytest.raises(TypeError, match="no literal"):
        literal(value)


@cache
def _connected(url: str) -> psycopg.Connection[tuple[object, ...]]:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("SET escape_string_warning = off")
    return connection
