"""Group: how many statements an operation takes (rule A3).

Counted between program and driver. What a driver adds of its own only the
database's log can tell.
"""

from __future__ import annotations

import pytest

from semel.core.model import Execute, InFlight, Mismatch, Mode, Replay
from semel.testing.conformance.group import Bench, Group, requires
from semel.testing.conformance.injection import Record
from semel.testing.driving import ANSWER


class StatementCount(Group):
    """Budgets, apart from the control of transactions."""

    @pytest.mark.rule("A3")
    @requires("atomic")
    async def test_an_atomic_request_takes_two_statements_and_one_commit(
        self, bench: Bench
    ) -> None:
        """And one savepoint, so that a refusal can be stored."""
        record = Record()
        attempt = bench.attempt(bench.claim(mode=Mode.ATOMIC))
        await attempt.acquire(record)
        await bench.write(attempt, "paid")
        await attempt.settle(wrap=record)
        assert len(record.statements) == 2
        assert record.names.count("savepoint") == 1
        assert record.commits == 1

    @pytest.mark.rule("A3")
    @requires("joined")
    async def test_a_joined_request_takes_two_commits(self, bench: Bench) -> None:
        """One for the claim, one for effect and answer."""
        record = Record()
        attempt = bench.attempt(bench.claim(mode=Mode.JOINED))
        await attempt.acquire(record)
        await bench.harness.write_effect(await attempt.begin(record), "paid")
        record.is_open = attempt.unit.begun
        await attempt.settle(wrap=record)
        assert len(record.statements) <= 3
        assert record.commits == 2

    @pytest.mark.rule("A3")
    async def test_a_refusal_takes_two_statements_and_changes_nothing(
        self, bench: Bench, mode: Mode
    ) -> None:
        """A replay, a mismatch and a conflict alike."""
        await bench.completed(bench.claim("done", mode=mode))
        await bench.held(bench.claim("running", mode=mode))
        before = await bench.dump()
        refusals = []
        for new in (
            bench.claim("done", mode=mode),
            bench.claim("done", "other", mode=mode),
            bench.claim("running", mode=mode),
        ):
            record = Record()
            refusals.append(type(await bench.attempt(new).acquire(record)))
            assert len(record.statements) <= 2
            assert record.commits == 0
        assert refusals == [Replay, Mismatch, InFlight]
        assert await bench.dump() == before
        assert await bench.ask(bench.claim("done", mode=mode)) == Replay(ANSWER)

    @pytest.mark.rule("A3", "A4")
    @requires("joined", "clock_can_be_set")
    async def test_a_takeover_takes_one_commit(self, timed: Bench) -> None:
        """Look and take; nothing is tidied up first."""
        abandoned = timed.claim(mode=Mode.JOINED)
        await (await timed.held(abandoned)).close()
        timed.clock.advance(abandoned.lease)
        record = Record()
        attempt = timed.attempt(timed.claim(mode=Mode.JOINED))
        assert await attempt.acquire(record) == Execute(token=2, takeover=True)
        assert len(record.statements) <= 4
        assert record.commits == 1
