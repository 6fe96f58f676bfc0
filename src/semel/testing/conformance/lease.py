"""Group: lease, owner and token of joined claims, at their exact boundaries (rule A4)."""

from __future__ import annotations

import asyncio

import pytest

from semel.core.model import Execute, InFlight, Mode, Replay
from semel.errors import ClaimLostError
from semel.store import programs
from semel.store.statement import COMMIT, Steps, pump
from semel.testing.conformance.group import Bench, Group, requires
from semel.testing.driving import ANSWER, LEASE, RETENTION, Attempt

# A statement that would wait for a locked row waits for ever in these tests.
AT_ONCE = 10.0


class Leases(Group):
    """Who owns a claim, and until when."""

    @pytest.mark.rule("A4")
    @pytest.mark.parametrize("before", [LEASE, 1.0, 1e-3, 1e-6])
    @requires("joined", "clock_can_be_set")
    async def test_a_live_lease_is_respected(self, timed: Bench, before: float) -> None:
        """Up to the last microsecond a rival is told to come back when the lease ends."""
        owner = await timed.held(timed.claim(mode=Mode.JOINED))
        timed.clock.advance(LEASE - before)
        rows = await timed.dump()

        for mode in self.capabilities.modes:
            decision = await timed.ask(timed.claim(mode=mode))
            assert isinstance(decision, InFlight)
            assert decision.retry_after == pytest.approx(before, abs=1e-6)
        assert await timed.dump() == rows
        await timed.write(owner, "paid")
        await owner.settle()
        assert await timed.effects() == ["paid"]

    @pytest.mark.rule("A4")
    @pytest.mark.parametrize("after", [0.0, 1e-6, 1e-3, 1.0])
    @requires("joined", "clock_can_be_set")
    async def test_a_lease_is_over_at_its_exact_end(self, timed: Bench, after: float) -> None:
        """From that moment on the next request takes the claim over."""
        owner = await timed.held(timed.claim(mode=Mode.JOINED))
        await owner.close()
        timed.clock.advance(LEASE + after)

        rival = timed.attempt(timed.claim(mode=Mode.JOINED))
        assert await rival.acquire() == Execute(token=2, takeover=True)
        found = await timed.found(rival.new.identity)
        assert found.owner == rival.new.owner
        assert found.lease_expires_at == timed.clock() + LEASE
        assert found.expires_at == timed.clock() + RETENTION
        assert await timed.store.run(programs.renew([(rival.held, LEASE)])) == set()
        await timed.write(rival, "paid")
        await rival.settle()
        assert await timed.effects() == ["paid"]

    @pytest.mark.rule("A4")
    @requires("joined", "clock_can_be_set")
    async def test_the_token_only_grows(self, timed: Bench) -> None:
        """Takeover, release, and expiry of the answer: every owner gets a larger one."""
        tokens: list[int] = []
        for end in ("abandon", "release", "complete", "abandon", "complete"):
            attempt = timed.attempt(timed.claim(mode=Mode.JOINED, retention=LEASE))
            decision = await attempt.acquire()
            assert isinstance(decision, Execute)
            tokens.append(decision.token)
            match end:
                case "abandon":
                    await attempt.close()
                case "release":
                    await attempt.roll_back()
                case _:
                    await attempt.settle()
            timed.clock.advance(LEASE)
        assert tokens == [1, 2, 3, 4, 5]

    @pytest.mark.rule("A4")
    @requires("joined", "clock_can_be_set")
    async def test_a_former_owner_changes_nothing(self, timed: Bench) -> None:
        """Complete, release, doubt and renew compare the owner, before and after the end."""
        former, owner = await _taken_over(timed)
        for ended in (False, True):
            before = await timed.dump()
            with pytest.raises(ClaimLostError):
                await timed.store.run(former.settling())
            assert not await timed.store.run(programs.release(former.held))
            assert not await timed.store.run(programs.put_in_doubt(former.held))
            lost = await timed.store.run(programs.renew([(former.held, 1e6)]))
            assert lost == {former.new.owner}
            assert await timed.dump() == before
            if not ended:
                await owner.settle()
        assert await timed.ask(timed.claim(mode=Mode.JOINED)) == Replay(ANSWER)

    @pytest.mark.rule("A4")
    @pytest.mark.parametrize("is_settled", [False, True])
    @requires("joined", "clock_can_be_set")
    async def test_the_effect_of_a_former_owner_is_rolled_back(
        self, timed: Bench, *, is_settled: bool
    ) -> None:
        """A paused owner that wakes after a takeover may write, but not commit."""
        former, owner = await _taken_over(timed, close=False)
        if is_settled:
            await timed.write(owner, "of the owner")
            await owner.settle()

        await timed.write(former, "of the former owner")
        with pytest.raises(ClaimLostError):
            await former.settle()
        if not is_settled:
            await timed.write(owner, "of the owner")
            await owner.settle()
        assert await timed.effects() == ["of the owner"]
        assert await timed.ask(timed.claim(mode=Mode.JOINED)) == Replay(ANSWER)

    @pytest.mark.rule("A4")
    @requires("joined", "clock_can_be_set", "concurrent")
    async def test_of_two_open_effects_one_is_committed(self, timed: Bench) -> None:
        """The lease runs out while the first owner's transaction is open."""
        former = await timed.held(timed.claim(mode=Mode.JOINED))
        await timed.write(former, "of the former owner")
        timed.clock.advance(LEASE)
        rival = timed.attempt(timed.claim(mode=Mode.JOINED))
        decision = await asyncio.wait_for(rival.acquire(), AT_ONCE)
        if isinstance(decision, Execute):
            await timed.write(rival, "of the rival")
            await rival.settle()
            with pytest.raises(ClaimLostError):
                await former.settle()
            assert await timed.effects() == ["of the rival"]
        else:  # the first owner has its row locked, so nobody can take it over
            assert isinstance(decision, InFlight)
            await former.settle()
            assert await timed.effects() == ["of the former owner"]
        assert await timed.ask(timed.claim(mode=Mode.JOINED)) == Replay(ANSWER)

    @pytest.mark.rule("A4")
    @requires("joined", "clock_can_be_set")
    async def test_a_renewal_moves_the_end(self, timed: Bench) -> None:
        """Each claim of one renewal gets its own lease, counted from now."""
        claims = [timed.claim(f"key-{lease}", mode=Mode.JOINED) for lease in (5, 7)]
        attempts = [await timed.held(new) for new in claims]
        timed.clock.advance(LEASE - 1)
        leases = [(attempt.held, lease) for attempt, lease in zip(attempts, (5, 7), strict=True)]
        assert await timed.store.run(programs.renew(leases)) == set()

        timed.clock.advance(5 - 1e-6)
        for lease in (5, 7):
            decision = await timed.ask(timed.claim(f"key-{lease}", mode=Mode.JOINED))
            assert isinstance(decision, InFlight)
        timed.clock.advance(1e-6)
        first = await timed.ask(timed.claim("key-5", mode=Mode.JOINED))
        second = await timed.ask(timed.claim("key-7", mode=Mode.JOINED))
        assert first == Execute(token=2, takeover=True)
        assert isinstance(second, InFlight)
        assert second.retry_after == pytest.approx(2)

    @pytest.mark.rule("A4")
    @requires("joined", "clock_can_be_set")
    async def test_a_late_renewal_keeps_what_nobody_took(self, timed: Bench) -> None:
        """One failed renewal does not end a claim."""
        attempt = await timed.held(timed.claim(mode=Mode.JOINED))
        timed.clock.advance(LEASE + 1)
        assert await timed.store.run(programs.renew([(attempt.held, LEASE)])) == set()
        assert isinstance(await timed.ask(timed.claim(mode=Mode.JOINED)), InFlight)
        await attempt.settle()

    @pytest.mark.rule("A4", "A6")
    @requires("joined", "clock_can_be_set", "concurrent")
    async def test_a_renewal_does_not_spoil_the_effect(self, timed: Bench) -> None:
        """A heartbeat while the handler's transaction is open: it commits all the same."""
        attempt = await timed.held(timed.claim(mode=Mode.JOINED))
        await timed.write(attempt, "paid")
        for _ in range(2):
            timed.clock.advance(1)
            beat = timed.store.run(programs.renew([(attempt.held, LEASE)]))
            assert await asyncio.wait_for(beat, AT_ONCE) == set()
        await attempt.settle()
        assert await timed.effects() == ["paid"]
        assert await timed.ask(timed.claim(mode=Mode.JOINED)) == Replay(ANSWER)

    @pytest.mark.rule("A4")
    @requires("joined", "clock_can_be_set")
    async def test_a_renewal_names_the_owners_that_lost(self, timed: Bench) -> None:
        """Taken over, settled, given back, in doubt, gone: all lost; the others live on."""
        former, owner = await _taken_over(timed, key="taken over")
        live = await timed.held(timed.claim("live", mode=Mode.JOINED))
        done = await timed.held(timed.claim("done", mode=Mode.JOINED))
        await done.settle()
        given_back = await timed.held(timed.claim("given back", mode=Mode.JOINED))
        await given_back.roll_back()
        doubtful = await timed.held(timed.claim("doubtful", mode=Mode.JOINED))
        await timed.store.run(programs.put_in_doubt(doubtful.held))
        gone = timed.attempt(timed.claim("gone", mode=Mode.JOINED))

        everyone = [former, owner, live, done, given_back, doubtful, gone]
        lost = await timed.store.run(programs.renew([(one.held, LEASE) for one in everyone]))

        expected = {one.new.owner for one in (former, done, given_back, doubtful, gone)}
        assert lost == expected

    @pytest.mark.rule("A4")
    @requires("joined", "clock_can_be_set")
    async def test_a_renewal_of_nothing_loses_nothing(self, timed: Bench) -> None:
        """A heartbeat without claims harms none."""
        await timed.held(timed.claim(mode=Mode.JOINED))
        before = await timed.dump()
        assert await timed.store.run(programs.renew([])) == set()
        assert await timed.dump() == before

    @pytest.mark.rule("A4")
    @requires("joined", "clock_can_be_set")
    async def test_a_link_renews_from_a_thread_of_its_own(self, timed: Bench) -> None:
        """The heartbeat needs neither the pool nor the event loop."""
        attempt = await timed.held(timed.claim(mode=Mode.JOINED))
        stranger = timed.attempt(timed.claim(mode=Mode.JOINED))
        timed.clock.advance(LEASE - 1)

        def beat() -> set[bytes]:
            claims = [(attempt.held, LEASE), (stranger.held, LEASE)]
            with timed.store.link() as link:
                return pump(link, programs.renew(claims))

        assert await asyncio.to_thread(beat) == {stranger.new.owner}
        found = await timed.found(attempt.new.identity)
        assert found.lease_expires_at == timed.clock() + LEASE

    @pytest.mark.rule("A4")
    @requires("joined", "clock_can_be_set", "concurrent")
    async def test_a_renewal_passes_over_locked_rows(self, timed: Bench) -> None:
        """A claim that is being settled neither waits nor counts as lost."""
        settling = await timed.held(timed.claim("settling", mode=Mode.JOINED))
        other = await timed.held(timed.claim("other", mode=Mode.JOINED))
        await _complete_without_commit(settling)
        timed.clock.advance(1)

        beat = timed.store.run(programs.renew([(settling.held, LEASE), (other.held, LEASE)]))
        assert await asyncio.wait_for(beat, AT_ONCE) == set()
        found = await timed.found(other.new.identity)
        assert found.lease_expires_at == timed.clock() + LEASE
        await settling.unit.run(_commit())
        assert await timed.ask(timed.claim("settling", mode=Mode.JOINED)) == Replay(ANSWER)

    @pytest.mark.rule("A4")
    @requires("joined", "clock_can_be_set", "concurrent")
    async def test_a_takeover_does_not_wait_for_a_frozen_owner(self, timed: Bench) -> None:
        """An owner that froze between completion and commit holds up nobody."""
        frozen = await timed.held(timed.claim(mode=Mode.JOINED))
        await timed.write(frozen, "paid")
        await _complete_without_commit(frozen)
        timed.clock.advance(LEASE)

        rival = timed.attempt(timed.claim(mode=Mode.JOINED))
        assert isinstance(await asyncio.wait_for(rival.acquire(), AT_ONCE), InFlight)
        await frozen.unit.run(_commit())
        assert await timed.ask(timed.claim(mode=Mode.JOINED)) == Replay(ANSWER)
        assert await timed.effects() == ["paid"]


async def _taken_over(
    bench: Bench, *, key: str = "key", close: bool = True
) -> tuple[Attempt[object], Attempt[object]]:
    """Let a claim be taken over; return its former owner and its owner."""
    former = await bench.held(bench.claim(key, mode=Mode.JOINED))
    if close:
        await former.close()
    bench.clock.advance(LEASE)
    owner = await bench.held(bench.claim(key, mode=Mode.JOINED))
    return former, owner


async def _complete_without_commit(attempt: Attempt[object]) -> None:
    """Bring a joined claim to the moment before its commit."""
    await attempt.begin()
    await attempt.unit.run(_up_to_commit(attempt.settling()))


def _up_to_commit(steps: Steps[None]) -> Steps[None]:
    statement = next(steps)
    while statement != COMMIT:
        statement = steps.send((yield statement))
    steps.close()


def _commit() -> Steps[None]:
    yield COMMIT
