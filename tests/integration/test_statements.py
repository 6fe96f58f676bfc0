"""What the database logs for each kind of request (rule A3): its log is the witness."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from guarding import ANSWER, pay, shop
from semel.core.model import InFlight, Mismatch, Mode, Replay
from servers import OwnPostgres

APPLICATION = "semel-count"


def shape(statements: list[str]) -> list[str]:
    """Name the statements by what they do."""
    known = {
        'INSERT INTO "semel_claim" AS c': "claim_open",
        'INSERT INTO "semel_claim" (': "claim_insert",
        "SELECT c.mode": "claim_look",
        "WITH completed AS": "claim_complete",
        "SELECT set_config": "effect_open",
        "PREPARE semel_claim_fresh": "prepare",
        "PREPARE semel_claim_won": "prepare",
        "BEGIN;EXECUTE semel_claim_fresh": "claim_fresh",
        "INSERT INTO effect": "effect",
        "SAVEPOINT": "SAVEPOINT",
        "ROLLBACK TO": "ROLLBACK TO",
        'UPDATE "semel_claim"': "claim_release",
    }
    found = []
    for text in statements:
        name = next((name for start, name in known.items() if text.startswith(start)), None)
        found.append(name or re.sub(r" ISOLATION.*", "", text))
    return found


def plain(statement: str) -> str:
    """Leave out what differs from request to request: digests and the values of scripts."""
    return re.sub(r"(semel_[a-z_]+)_[0-9a-f]{12}(\(.*?\)(?=;))?", r"\1", statement)


class Log:
    """The statements that one application sent since the last look.

    That a connection learns the statements of scripts, once, is left out.
    """

    def __init__(self, server: OwnPostgres) -> None:
        self._server = server
        self._seen = len(server.statements(APPLICATION))

    def since(self) -> list[str]:
        every = self._server.statements(APPLICATION)
        new, self._seen = every[self._seen :], len(every)
        return [name for name in shape(new) if name != "prepare"]


@pytest.mark.rule("A3")
async def test_an_atomic_request_a_replay_and_a_conflict(own_postgres: OwnPostgres) -> None:
    own_postgres.set(log_statement="all")
    async with shop(f"{own_postgres.url}?application_name={APPLICATION}") as opened:
        log = Log(own_postgres)
        claim = await opened.claim("k")
        await pay(claim)
        conflict = await opened.acquire("k")
        assert isinstance(conflict, InFlight)
        await claim.complete(ANSWER)
        assert log.since() == [
            "claim_fresh",  # with BEGIN and SAVEPOINT in one text
            "effect",
            # the conflict, on another connection
            "claim_fresh",
            "claim_look",
            "ROLLBACK",
            # the first one's settlement
            "claim_complete",
            "COMMIT",
        ]
        # A replay that this process remembers is one read, one that it does not two
        # statements; neither changes a row.
        assert isinstance(await opened.acquire("k"), Replay)
        assert log.since() == ["claim_look"]
        before = await opened.query("SELECT xmin, ctid FROM semel_claim")
        opened.guard._remembered._identities.clear()
        assert isinstance(await opened.acquire("k"), Replay)
        assert log.since() == ["claim_fresh", "claim_look", "ROLLBACK"]
        assert isinstance(await opened.acquire("k", b"501"), Mismatch)
        assert log.since() == ["claim_look"]
        assert await opened.query("SELECT xmin, ctid FROM semel_claim") == before


@pytest.mark.rule("A3", "O2")
async def test_a_stored_refusal_and_a_failure(own_postgres: OwnPostgres) -> None:
    own_postgres.set(log_statement="all")
    async with shop(f"{own_postgres.url}?application_name={APPLICATION}") as opened:
        log = Log(own_postgres)
        claim = await opened.claim("declined")
        await pay(claim)
        await claim.complete(type(ANSWER)(422, (), b"no"))
        assert log.since() == [
            *("claim_fresh", "effect"),
            *("ROLLBACK TO", "claim_complete", "COMMIT"),
        ]
        claim = await opened.claim("broken")
        await pay(claim)
        await claim.complete(type(ANSWER)(500, (), b"oh"))
        assert log.since() == ["claim_fresh", "effect", "ROLLBACK"]
        assert await opened.effects() == []


@pytest.mark.rule("A3")
async def test_a_joined_request_commits_twice(own_postgres: OwnPostgres) -> None:
    own_postgres.set(log_statement="all")
    url = f"{own_postgres.url}?application_name={APPLICATION}"
    async with shop(url, mode=Mode.JOINED) as opened:
        log = Log(own_postgres)
        claim = await opened.claim("k")
        await pay(claim)
        conflict = await opened.acquire("k")
        assert isinstance(conflict, InFlight)
        await claim.complete(ANSWER)
        assert log.since() == [
            "claim_insert",  # commits by itself: the first commit
            *("BEGIN", "effect_open", "effect"),
            *("claim_insert", "claim_look"),  # the conflict
            *("claim_complete", "COMMIT"),  # the second commit
        ]
        opened.guard._remembered._identities.clear()
        assert isinstance(await opened.acquire("k"), Replay)
        assert log.since() == ["claim_insert", "claim_look"]


@pytest.mark.rule("A3")
@pytest.mark.parametrize("mode", [Mode.ATOMIC, Mode.JOINED])
async def test_the_architecture_page_shows_what_is_sent(
    own_postgres: OwnPostgres, mode: Mode
) -> None:
    page = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text("utf-8")
    shown = " ".join(page.split(f"\n### {mode}\n")[1].split("\n##")[0].split())
    own_postgres.set(log_statement="all")
    url = f"{own_postgres.url}?application_name={APPLICATION}"
    async with shop(url, mode=mode) as opened:
        before = len(own_postgres.statements(APPLICATION))
        claim = await opened.claim("k")
        await pay(claim)
        await claim.complete(ANSWER)
        sent = [plain(text) for text in own_postgres.statements(APPLICATION)[before:]]
    assert "; ".join(sent) in shown
