"""Group: times are compared on the store's clock, never on this host's (rule S4)."""

from __future__ import annotations

import time

import pytest

from semel.core.model import InFlight, Mode, Replay
from semel.store import programs
from semel.testing.conformance.group import Bench, Group, requires
from semel.testing.driving import ANSWER, Attempt

HOUR = 3600.0
MINUTE = 60.0
SKEWS = [-HOUR, HOUR]


class ClockIndependence(Group):
    """The clock of one host is an hour off, and nothing comes of it."""

    @pytest.mark.rule("S4", "A4")
    @pytest.mark.parametrize("skew", SKEWS)
    @requires("processes", "joined")
    async def test_a_lease(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, skew: float
    ) -> None:
        """Neither an owner nor a rival on that host moves its end."""
        owner = await bench.held(bench.claim("ours", mode=Mode.JOINED, lease=MINUTE))
        _set_off(monkeypatch, skew)
        strangers = await bench.held(bench.claim("theirs", mode=Mode.JOINED, lease=MINUTE))
        await _in_flight(bench, "ours")
        assert await bench.store.run(programs.renew([(owner.held, MINUTE)])) == set()
        monkeypatch.undo()
        await _in_flight(bench, "ours")
        await _in_flight(bench, "theirs")
        await _settle(owner, strangers)

    @pytest.mark.rule("S4", "X1")
    @pytest.mark.parametrize("skew", SKEWS)
    @requires("processes")
    async def test_a_retention(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, mode: Mode, skew: float
    ) -> None:
        """Neither an acquire nor a purge on that host ends it."""
        await bench.completed(bench.claim("ours", mode=mode, retention=MINUTE))
        _set_off(monkeypatch, skew)
        await bench.completed(bench.claim("theirs", mode=mode, retention=MINUTE))
        for off in (True, False):
            for key in ("ours", "theirs"):
                assert await bench.ask(bench.claim(key, mode=mode)) == Replay(ANSWER)
                found = await bench.found(bench.claim(key, mode=mode).identity)
                assert 0 < found.expires_at - found.now <= MINUTE
            assert await bench.store.run(programs.purge(10)) == 0
            if off:
                monkeypatch.undo()


def _set_off(monkeypatch: pytest.MonkeyPatch, skew: float) -> None:
    right, right_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: right() + skew)
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + int(skew * 1e9))


async def _in_flight(bench: Bench, key: str) -> None:
    decision = await bench.ask(bench.claim(key, mode=Mode.JOINED))
    assert isinstance(decision, InFlight)
    assert 0 < decision.retry_after <= MINUTE


async def _settle(*attempts: Attempt[object]) -> None:
    for attempt in attempts:
        await attempt.settle()
