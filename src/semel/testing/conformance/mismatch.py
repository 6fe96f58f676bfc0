"""Group: the same key with another request changes nothing (rule F5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from semel.core.model import Execute, InFlight, Mismatch, Mode, Replay
from semel.errors import RecipeUnknownError
from semel.store import programs
from semel.testing.conformance.group import Bench, Group, requires
from semel.testing.driving import ANSWER, LEASE, RETENTION, Attempt


class MismatchedRequests(Group):
    """Another request is refused, whatever state the claim is in."""

    @pytest.mark.rule("F5")
    async def test_a_completed_claim_is_for_its_own_request(self, bench: Bench, mode: Mode) -> None:
        """The other request is refused, and the first one is replayed as before."""
        await bench.completed(bench.claim(mode=mode), effect="paid")
        before = await bench.dump()

        for _ in range(2):
            assert await bench.ask(bench.claim(body="other", mode=mode)) == Mismatch()
        assert await bench.dump() == before
        assert await bench.ask(bench.claim(mode=mode)) == Replay(ANSWER)
        assert await bench.effects() == ["paid"]

    @pytest.mark.rule("F5")
    @requires("joined")
    async def test_a_running_joined_claim_refuses_at_once(self, bench: Bench) -> None:
        """The caller need not wait to learn that the key was used before."""
        running = await bench.held(bench.claim(mode=Mode.JOINED))
        before = await bench.dump()

        for mode in self.capabilities.modes:
            assert await bench.ask(bench.claim(body="other", mode=mode)) == Mismatch()
        assert await bench.dump() == before
        await bench.write(running, "paid")
        await running.settle()
        assert await bench.effects() == ["paid"]

    @pytest.mark.rule("F5")
    @requires("joined", "clock_can_be_set")
    async def test_no_mismatch_takes_over(self, timed: Bench) -> None:
        """However long the lease is over, only the same request takes the claim."""
        running = await timed.held(timed.claim(mode=Mode.JOINED))
        await running.close()
        before = await timed.dump()

        for seconds in (LEASE, 1e-6, RETENTION - LEASE - 1):
            timed.clock.advance(seconds)
            for mode in self.capabilities.modes:
                assert await timed.ask(timed.claim(body="other", mode=mode)) == Mismatch()
        assert await timed.dump() == before
        same = await timed.ask(timed.claim(mode=Mode.JOINED))
        assert same == Execute(token=2, takeover=True)

    @pytest.mark.rule("F5")
    @requires("joined")
    async def test_doubt_is_for_its_own_request_too(self, bench: Bench) -> None:
        """Another request does not learn that there is something to settle."""
        running = await bench.held(bench.claim(mode=Mode.JOINED))
        await bench.store.run(programs.put_in_doubt(running.held))
        before = await bench.dump()
        assert await bench.ask(bench.claim(body="other", mode=Mode.JOINED)) == Mismatch()
        assert await bench.dump() == before

    @pytest.mark.rule("F5")
    @requires("atomic")
    async def test_an_open_atomic_claim_shows_no_request(self, bench: Bench) -> None:
        """Until the first request commits, any other one is merely too early."""
        running = await bench.held(bench.claim(mode=Mode.ATOMIC))
        other = bench.claim(body="other", mode=Mode.ATOMIC)
        assert isinstance(await bench.ask(other), InFlight)
        await running.settle()
        assert await bench.ask(other) == Mismatch()

    @pytest.mark.rule("F5", "O2")
    @requires("joined")
    async def test_a_released_claim_is_open_to_any_request(self, bench: Bench) -> None:
        """What was given back had no effect, so the key is not used up."""
        first = await bench.held(bench.claim(mode=Mode.JOINED))
        await first.roll_back()
        await bench.completed(bench.claim(body="other", mode=Mode.JOINED), effect="other")
        assert await bench.ask(bench.claim(mode=Mode.JOINED)) == Mismatch()
        assert await bench.effects() == ["other"]

    @pytest.mark.rule("F1")
    async def test_a_request_that_can_not_be_compared_holds_nothing(
        self, bench: Bench, mode: Mode
    ) -> None:
        """A judge that raises ends the attempt: no change, no connection kept."""
        await bench.completed(bench.claim(mode=mode))
        before = await bench.dump()
        for _ in range(20):  # more often than there are connections
            with pytest.raises(RecipeUnknownError):
                await _unreadable(bench, mode).acquire()
        assert await bench.dump() == before
        assert await bench.ask(bench.claim(mode=mode)) == Replay(ANSWER)


class _Unreadable:
    """The fingerprint of a process that does not know the stored recipe."""

    recipe = "test-2"
    digest = bytes(32)
    raw = bytes(32)

    def matches(self, recipe: str, digest: bytes, raw: bytes) -> bool:
        del digest, raw
        raise RecipeUnknownError(recipe)


def _unreadable(bench: Bench, mode: Mode) -> Attempt[object]:
    return bench.attempt(replace(bench.claim(mode=mode), request=_Unreadable()))
