"""Group: what becomes of a claim from its acquire to the end of its retention."""

from __future__ import annotations

import pytest

from semel.core.model import (
    Answer,
    Execute,
    InDoubt,
    InFlight,
    Mode,
    Replay,
    Status,
)
from semel.errors import ClaimLostError
from semel.store import programs
from semel.store.listing import list_claims
from semel.testing.conformance.group import Bench, Group, requires
from semel.testing.driving import ANSWER, LEASE, RETENTION, Attempt, digest, held


class LifeCycle(Group):
    """Acquire, complete, release, doubt, in every order that matters."""

    @pytest.mark.rule("S4")
    async def test_the_store_has_the_declared_modes(self, bench: Bench) -> None:
        """A mode that is not declared would go untested."""
        assert set(bench.store.modes) == set(self.capabilities.modes)

    @pytest.mark.rule("S4")
    async def test_a_store_may_be_opened_or_simply_used(self, bench: Bench, mode: Mode) -> None:
        """The first use connects it; opening it once more does no harm."""
        unopened = bench.harness.store(tables=bench.store.tables)
        try:
            first = Attempt(unopened, bench.claim(mode=mode))
            assert await first.acquire() == Execute(token=1)
            await first.settle()
            for _ in range(2):
                await unopened.open()
                await unopened.check()
        finally:
            await unopened.aclose()
        assert await bench.ask(bench.claim(mode=mode)) == Replay(ANSWER)

    @pytest.mark.rule("A2", "S4")
    async def test_a_completed_claim_is_replayed(self, bench: Bench, mode: Mode) -> None:
        """The first request executes, every later one gets its answer."""
        attempt = bench.attempt(bench.claim(mode=mode))
        assert await attempt.acquire() == Execute(token=1)
        await bench.write(attempt, "paid")
        await attempt.settle()

        for _ in range(3):
            assert await bench.ask(bench.claim(mode=mode)) == Replay(ANSWER)
        assert await bench.effects() == ["paid"]

    @pytest.mark.rule("A2")
    async def test_a_claim_completes_without_an_effect(self, bench: Bench, mode: Mode) -> None:
        """A handler that never touches its transaction is settled all the same."""
        attempt = await bench.held(bench.claim(mode=mode))
        await attempt.settle()
        assert await bench.ask(bench.claim(mode=mode)) == Replay(ANSWER)

    @pytest.mark.rule("A4", "O2")
    @requires("joined")
    async def test_a_released_claim_is_free_and_its_token_grows(self, bench: Bench) -> None:
        """However often a claim is given back, the next token is larger."""
        for token in (1, 2, 3):
            attempt = bench.attempt(bench.claim(body=f"try {token}", mode=Mode.JOINED))
            assert await attempt.acquire() == Execute(token)
            await bench.write(attempt, f"undone {token}")
            await attempt.roll_back()
            assert (await bench.found(attempt.new.identity)).status is Status.RELEASED
        assert await bench.effects() == []

    @pytest.mark.rule("O2")
    @requires("atomic")
    async def test_a_rolled_back_atomic_claim_leaves_no_trace(self, bench: Bench) -> None:
        """Not even a row tells that somebody tried."""
        attempt = await bench.held(bench.claim(mode=Mode.ATOMIC))
        await bench.write(attempt, "undone")
        await attempt.roll_back()

        assert await bench.dump() == []
        assert await bench.effects() == []
        assert await bench.ask(bench.claim(body="other", mode=Mode.ATOMIC)) == Execute(token=1)

    @pytest.mark.rule("O2")
    async def test_an_undone_effect_keeps_the_answer(self, bench: Bench, mode: Mode) -> None:
        """A refusal that is stored takes the handler's effects back first."""
        declined = Answer(402, (), b"declined")
        attempt = await bench.held(bench.claim(mode=mode))
        await bench.write(attempt, "undone")
        await attempt.settle(declined, undo=True)

        assert await bench.effects() == []
        assert await bench.ask(bench.claim(mode=mode)) == Replay(declined)

    @pytest.mark.rule("A4")
    async def test_a_claim_can_not_be_completed_twice(self, bench: Bench, mode: Mode) -> None:
        """The first answer is final, whoever comes with a second one."""
        new = bench.claim(mode=mode)
        await bench.completed(new)
        before = await bench.dump()

        second = Answer(500, (), b"second")
        with pytest.raises(ClaimLostError):
            await bench.store.run(
                programs.settle_joined(held(new), second, begun=False, undo=False)
            )
        assert not await bench.store.run(programs.release(held(new)))
        assert not await bench.store.run(programs.put_in_doubt(held(new)))
        assert await bench.dump() == before

    @pytest.mark.rule("A4")
    @requires("joined")
    async def test_a_released_claim_has_no_owner(self, bench: Bench) -> None:
        """Who gave a claim back can neither complete it nor give it back again."""
        attempt = await bench.held(bench.claim(mode=Mode.JOINED))
        await attempt.roll_back()
        before = await bench.dump()

        with pytest.raises(ClaimLostError):
            await bench.store.run(
                programs.settle_joined(attempt.held, ANSWER, begun=False, undo=False)
            )
        assert not await bench.store.run(programs.release(attempt.held))
        assert not await bench.store.run(programs.put_in_doubt(attempt.held))
        assert await bench.dump() == before

    @pytest.mark.rule("A5")
    @requires("joined", "clock_can_be_set")
    async def test_doubt_lasts_until_somebody_settles_it(self, timed: Bench) -> None:
        """Neither the lease nor the retention nor a purge ends it."""
        attempt = await timed.held(timed.claim(mode=Mode.JOINED))
        await attempt.close()
        assert await timed.store.run(programs.put_in_doubt(attempt.held))
        before = await timed.dump()

        for seconds in (0, LEASE, RETENTION, 1e6):
            timed.clock.advance(seconds)
            for mode in self.capabilities.modes:
                assert await timed.ask(timed.claim(mode=mode)) == InDoubt()
        assert await timed.store.run(programs.purge(100)) == 0
        assert not await timed.store.run(programs.put_in_doubt(attempt.held))
        assert not await timed.store.run(programs.release(attempt.held))
        assert await timed.store.run(programs.renew([(attempt.held, LEASE)])) == {attempt.new.owner}
        assert await timed.dump() == before

    @pytest.mark.rule("K4", "F6")
    async def test_other_keys_and_scopes_are_other_claims(self, bench: Bench, mode: Mode) -> None:
        """The same request under another key or by another tenant runs as well."""
        for scope in ("shop-1", "shop-2"):
            for key in ("key-1", "key-2"):
                effect = f"{scope} {key}"
                await bench.completed(bench.claim(key, mode=mode, scope=scope), effect=effect)
        assert await bench.effects() == [
            "shop-1 key-1",
            "shop-1 key-2",
            "shop-2 key-1",
            "shop-2 key-2",
        ]

    @pytest.mark.rule("A2")
    @requires("atomic", "joined")
    async def test_a_claim_is_judged_by_the_mode_it_was_made_with(self, bench: Bench) -> None:
        """A deploy that changes the mode meets the claims of the mode before."""
        for made, asked in ((Mode.ATOMIC, Mode.JOINED), (Mode.JOINED, Mode.ATOMIC)):
            await bench.completed(bench.claim(f"done {made}", mode=made))
            assert await bench.ask(bench.claim(f"done {made}", mode=asked)) == Replay(ANSWER)

        running = await bench.held(bench.claim("running", mode=Mode.JOINED))
        asked_meanwhile = await bench.ask(bench.claim("running", mode=Mode.ATOMIC))
        assert isinstance(asked_meanwhile, InFlight)
        await running.roll_back()
        assert await bench.ask(bench.claim("running", mode=Mode.ATOMIC)) == Execute(token=2)

    @pytest.mark.rule("A2", "A4")
    @requires("atomic", "joined", "clock_can_be_set")
    async def test_an_atomic_request_takes_over_from_a_joined_one(self, timed: Bench) -> None:
        """It is a takeover like any other, and in the claim's own transaction."""
        joined = await timed.held(timed.claim(mode=Mode.JOINED))
        await joined.close()
        timed.clock.advance(LEASE)

        atomic = timed.attempt(timed.claim(mode=Mode.ATOMIC))
        assert await atomic.acquire() == Execute(token=2, takeover=True)
        await timed.write(atomic, "paid")
        await atomic.settle()
        with pytest.raises(ClaimLostError):
            await timed.store.run(joined.settling())
        assert await timed.ask(timed.claim(mode=Mode.JOINED)) == Replay(ANSWER)
        assert await timed.effects() == ["paid"]

    @pytest.mark.rule("R6")
    async def test_a_look_tells_what_was_stored(self, bench: Bench, mode: Mode) -> None:
        """Everything that an acquire gave, and the answer once there is one."""
        new = bench.claim(mode=mode)
        assert await bench.look(new.identity) is None
        await bench.completed(new)

        found = await bench.found(new.identity)
        assert (found.mode, found.status, found.token) == (mode, Status.COMPLETED, 1)
        assert (found.owner, found.recipe) == (new.owner, new.request.recipe)
        assert (found.digest, found.raw) == (new.request.digest, new.request.raw)
        assert found.answer == ANSWER
        assert found.lease_expires_at is None
        assert 0 < found.expires_at - found.now <= RETENTION

    @pytest.mark.rule("K6")
    @requires("clock_can_be_set")
    async def test_claims_are_listed_newest_first(self, timed: Bench, mode: Mode) -> None:
        """An operator sees digests and sizes, never a key or a body."""
        keys = ("first", "second", "third")
        for key in keys:
            await timed.completed(timed.claim(key, mode=mode))
            timed.clock.advance(1)

        listed = await timed.store.run(list_claims(2), writes=False)

        assert [claim.key for claim in listed] == [digest("third"), digest("second")]
        assert {claim.scope for claim in listed} == {digest("scope")}
        newest = listed[0]
        assert (newest.mode, newest.status, newest.token) == (mode, Status.COMPLETED, 1)
        assert newest.created_at == timed.clock() - 1
        assert newest.expires_at == timed.clock() - 1 + RETENTION
        assert (newest.answer_status, newest.answer_bytes) == (201, len(ANSWER.body or b""))
