"""Group: how long a settled claim counts, and what a purge may delete (rules X1, X2, A5)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from semel.core.model import Execute, InFlight, Mismatch, Mode, Replay
from semel.errors import StoreConflictError
from semel.store import programs
from semel.testing.conformance.group import Bench, Group, requires
from semel.testing.driving import ANSWER, LEASE, RETENTION

AT_ONCE = 10.0


class Retention(Group):
    """A claim is there, absent, or purged; absent and purged are the same."""

    @pytest.mark.rule("X1")
    @requires("clock_can_be_set")
    async def test_an_answer_is_kept_until_its_exact_end(self, timed: Bench, mode: Mode) -> None:
        """The retention counts from the completion, not from the acquire."""
        attempt = await timed.held(timed.claim(mode=mode))
        timed.clock.advance(LEASE / 2)
        await attempt.settle()

        for seconds in (0.0, RETENTION / 2, RETENTION / 2 - 1e-6):
            timed.clock.advance(seconds)
            assert await timed.ask(timed.claim(mode=mode)) == Replay(ANSWER)
            assert await timed.ask(timed.claim(body="other", mode=mode)) == Mismatch()
            assert await timed.store.run(programs.purge(10)) == 0
        timed.clock.advance(1e-6)
        assert await timed.ask(timed.claim(body="other", mode=mode)) == Execute(token=2)

    @pytest.mark.rule("X1")
    @pytest.mark.parametrize("purged", [False, True])
    @requires("clock_can_be_set")
    async def test_an_expired_claim_is_absent_purged_or_not(
        self, timed: Bench, mode: Mode, *, purged: bool
    ) -> None:
        """The next request executes, and its answer replaces the old one."""
        await timed.completed(timed.claim(mode=mode), effect="first")
        timed.clock.advance(RETENTION)
        if purged:
            assert await timed.store.run(programs.purge(10)) == 1
            assert await timed.dump() == []

        second = replace(ANSWER, body=b"second")
        await timed.completed(timed.claim(body="other", mode=mode), second, effect="second")
        assert await timed.ask(timed.claim(body="other", mode=mode)) == Replay(second)
        assert await timed.effects() == ["first", "second"]

    @pytest.mark.rule("X1")
    @requires("clock_can_be_set")
    async def test_each_claim_has_its_own_retention(self, timed: Bench, mode: Mode) -> None:
        """A route that keeps longer is not cut short by one that does not."""
        await timed.completed(timed.claim("short", mode=mode, retention=1.0))
        await timed.completed(timed.claim("long", mode=mode, retention=1000.0))
        timed.clock.advance(1.0)
        assert await timed.store.run(programs.purge(10)) == 1
        assert await timed.ask(timed.claim("long", mode=mode)) == Replay(ANSWER)

    @pytest.mark.rule("A5")
    @requires("joined", "clock_can_be_set")
    async def test_an_abandoned_joined_claim_ends_with_its_retention(
        self, timed: Bench, mode: Mode
    ) -> None:
        """Taken over before; from then on absent, also for another request."""
        attempt = await timed.held(timed.claim(mode=Mode.JOINED))
        await attempt.close()
        other = timed.claim(body="other", mode=mode)
        timed.clock.advance(RETENTION - 1e-6)
        assert await timed.store.run(programs.purge(10)) == 0
        assert await timed.ask(other) == Mismatch()
        timed.clock.advance(1e-6)
        assert await timed.ask(other) == Execute(token=2)

    @pytest.mark.rule("A5", "X2")
    @requires("joined", "clock_can_be_set")
    async def test_a_live_lease_outlives_the_retention(self, timed: Bench) -> None:
        """A handler that runs longer than answers are kept still holds its key."""
        attempt = await timed.held(timed.claim(mode=Mode.JOINED, lease=50.0, retention=5.0))
        timed.clock.advance(50.0 - 1e-6)
        assert await timed.store.run(programs.purge(10)) == 0
        assert isinstance(await timed.ask(timed.claim(mode=Mode.JOINED)), InFlight)
        await attempt.settle()

    @pytest.mark.rule("X2")
    @requires("clock_can_be_set")
    async def test_a_purge_is_bounded_and_begins_with_the_oldest(
        self, timed: Bench, mode: Mode
    ) -> None:
        """No batch deletes more than it was allowed to."""
        for number in range(7):
            await timed.completed(timed.claim(f"key-{number}", mode=mode))
            timed.clock.advance(1.0)
        timed.clock.advance(RETENTION)

        assert await timed.store.run(programs.purge(3)) == 3
        for number in range(7):
            found = await timed.look(timed.claim(f"key-{number}", mode=mode).identity)
            assert (found is None) == (number < 3)
        assert await timed.store.run(programs.purge(3)) == 3
        assert await timed.store.run(programs.purge(3)) == 1
        assert await timed.store.run(programs.purge(3)) == 0

    @pytest.mark.rule("X2", "A5")
    @requires("joined", "clock_can_be_set")
    async def test_a_purge_deletes_only_what_counts_as_absent(self, timed: Bench) -> None:
        """Live, renewed, unexpired, leased and doubtful claims stay as they are."""
        for key in ("completed", "released", "abandoned", "renewed", "doubtful"):
            attempt = await timed.held(timed.claim(key, mode=Mode.JOINED))
            match key:
                case "completed":
                    await attempt.settle()
                case "released":
                    await attempt.roll_back()
                case "doubtful":
                    await timed.store.run(programs.put_in_doubt(attempt.held))
                case "renewed":
                    renewed = attempt
            await attempt.close()
        await timed.held(timed.claim("leased", mode=Mode.LEASED))
        timed.clock.advance(RETENTION)
        assert await timed.store.run(programs.renew([(renewed.held, LEASE)])) == set()
        await timed.completed(timed.claim("fresh", mode=Mode.JOINED))
        await timed.held(timed.claim("running", mode=Mode.JOINED))
        live = {
            timed.claim(key, mode=Mode.JOINED).identity.key
            for key in ("renewed", "doubtful", "leased", "fresh", "running")
        }
        expected = [row for row in await timed.dump() if row.listed.key in live]

        assert await timed.store.run(programs.purge(100)) == 3
        assert await timed.dump() == expected
        assert len(expected) == len(live)

    @pytest.mark.rule("A5")
    @requires("joined", "clock_can_be_set")
    async def test_an_abandoned_leased_claim_is_never_taken(self, timed: Bench) -> None:
        """Its effect may have happened elsewhere: neither lease nor retention frees it.

        Stores without that mode meet such rows too, written by a newer version.
        """
        leased = await timed.held(timed.claim(mode=Mode.LEASED))
        await leased.close()
        for seconds in (LEASE, RETENTION, 1e6):
            timed.clock.advance(seconds)
            before = await timed.dump()
            for mode in self.capabilities.modes:
                decision = await timed.ask(timed.claim(mode=mode))
                assert not isinstance(decision, Execute | Replay)
            assert await timed.store.run(programs.purge(100)) == 0
            assert await timed.dump() == before

    @pytest.mark.rule("X2")
    @requires("atomic", "concurrent", "clock_can_be_set")
    async def test_a_purge_neither_waits_for_nor_deletes_a_key_in_use(self, timed: Bench) -> None:
        """The expired row is being taken by a transaction that is still open."""
        await timed.completed(timed.claim(mode=Mode.ATOMIC))
        timed.clock.advance(RETENTION)
        owner = await timed.held(timed.claim(body="second", mode=Mode.ATOMIC))

        purging = timed.store.run(programs.purge(10))
        assert await asyncio.wait_for(purging, AT_ONCE) == 0
        await timed.write(owner, "paid")
        await owner.settle()
        assert await timed.ask(timed.claim(body="second", mode=Mode.ATOMIC)) == Replay(ANSWER)

    @pytest.mark.rule("X2")
    @requires("clock_can_be_set")
    async def test_purgers_share_the_work(self, timed: Bench, mode: Mode) -> None:
        """Several at once delete every expired claim once, and no other."""
        for number in range(40):
            await timed.completed(timed.claim(f"old-{number}", mode=mode))
        timed.clock.advance(RETENTION)
        for number in range(5):
            await timed.completed(timed.claim(f"new-{number}", mode=mode))
        expected = {timed.claim(f"new-{n}", mode=mode).identity.key for n in range(5)}

        counts = await asyncio.gather(*(_purge_all(timed) for _ in range(4)))
        assert sum(counts) == 40
        assert {row.listed.key for row in await timed.dump()} == expected

    @pytest.mark.rule("X2")
    @requires("clock_can_be_set")
    async def test_a_purge_beside_live_traffic_deletes_no_claim_in_use(
        self, timed: Bench, mode: Mode
    ) -> None:
        """Expired keys are taken again while purgers run: no claim gets lost."""
        keys = [f"key-{number}" for number in range(12)]
        for turn in range(4):
            for key in keys:
                await timed.completed(timed.claim(key, mode=mode))
            timed.clock.advance(RETENTION)
            attempts = [timed.attempt(timed.claim(key, f"{turn}", mode=mode)) for key in keys]
            decisions = await asyncio.gather(
                *(attempt.acquire_patiently() for attempt in attempts),
                *(_purge_all(timed) for _ in range(3)),
            )
            for attempt, decision in zip(attempts, decisions, strict=False):
                if not isinstance(decision, Execute):  # a purger had the row locked
                    assert isinstance(decision, InFlight)
                    await (await timed.held(attempt.new)).settle()
                else:
                    await attempt.settle()
                found = await timed.found(attempt.new.identity)
                assert found.owner == attempt.new.owner
            timed.clock.advance(RETENTION)
            await _purge_all(timed)


async def _purge_all(bench: Bench) -> int:
    """Purge in small batches until there is nothing left; a conflict is no reason to stop."""
    deleted = 0
    while True:
        try:
            batch = await bench.store.run(programs.purge(5))
        except StoreConflictError:
            continue
        if not batch:
            return deleted
        deleted += batch
