"""The benchmark's own arithmetic: rounds, medians, bars, counted rows, and the page of results.

Nothing is timed here, and no server is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from bench import results, rounds
from bench.b8 import SIZE, bodies, lossy
from bench.figures import KINDS, NOT_MEASURED, Figure, Kind, lower
from bench.load import Caller, Round, keys_of
from bench.processes import Answers, Load, RunError, Server
from bench.rounds import Length, Rates, compare, measure
from bench.sampling import Samples
from bench.sides import SIDES

ORIGIN = {
    "command": "script/bench",
    "date": "2026-01-02T03:04:05+00:00",
    "environment": {
        "commit": "0123456789ab",
        "python": "CPython 3.11.7",
        "postgresql": "15.2",
        "system": "Linux x86_64",
        "processor": "a processor",
        "cores": 2,
        "load_average_before": 0.1,
        "packages": {"asyncpg": "0.32.0"},
        "idemkit_packages": {"idemkit": "1.0.2"},
    },
}


def answers(count: int, *, seconds: float = 2.0, late: int = 0, cpu: float | None = 100) -> Answers:
    return Answers(count + late, count, seconds, p50_ms=1.0, p99_ms=count / 10, cpu_us=cpu)


def figure(name: str, *values: float) -> Figure:
    return Figure(KINDS[name], values)


class ScriptedLoad:
    """Gives each side its next number of answers, and remembers whose turn it was."""

    def __init__(self, **counts: list[int]) -> None:
        self.counts = {name: iter(each) for name, each in counts.items()}
        self.turns: list[str] = []

    def run(self, server: Server, seconds: float, keys: object) -> Answers:
        assert keys is None
        self.turns.append(server.name)
        return answers(next(self.counts[server.name]), seconds=seconds)


def measured(load: ScriptedLoad, length: Length) -> Rates:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    servers = [cast("Server", Named(name)) for name in load.counts]
    return measure(cast("Load", load), servers, length, lambda _: None)


class TestRounds:
    def test_the_ratio_is_taken_within_each_round(self) -> None:
        load = ScriptedLoad(ours=[5, 70, 35, 10], bare=[9, 100, 50, 40])
        rates = measured(load, Length(rounds=3, seconds=2.0, warm_up=1.0))
        assert rates.ratios("ours", "bare") == pytest.approx([0.7, 0.7, 0.25])

    def test_each_side_begins_in_turn(self) -> None:
        load = ScriptedLoad(ours=[1] * 4, bare=[1] * 4)
        measured(load, Length(rounds=3, seconds=2.0, warm_up=1.0))
        warm_up, *turns = [load.turns[at : at + 2] for at in range(0, 8, 2)]
        assert warm_up == ["ours", "bare"]
        assert turns == [["ours", "bare"], ["bare", "ours"], ["ours", "bare"]]

    def test_the_warm_up_counts_for_rows_and_not_for_rates(self) -> None:
        load = ScriptedLoad(ours=[1000, 10, 30])
        rates = measured(load, Length(rounds=2, seconds=2.0, warm_up=1.0))
        assert rates.answers == {"ours": 1040}
        assert rates.sides("ours")["ours"]["per_second"] == 10

    def test_late_answers_count_for_rows_and_not_for_rates(self) -> None:
        rates = Rates()
        rates.add("ours", answers(20, late=16), counts=True)
        assert rates.answers == {"ours": 36}
        assert rates.rounds["ours"][0].rate == 10

    def test_medians_of_a_side(self) -> None:
        rates = Rates()
        for count, cpu in ((10, 300.0), (20, None), (60, 100.0)):
            rates.add("ours", answers(count, cpu=cpu), counts=True)
        assert rates.sides("ours") == {
            "ours": {
                "per_second": 10,
                "p50_ms": 1.0,
                "p99_ms": 2.0,
                "server_cpu_us": 200,
                "answers": 90,
                "errors": 0,
            }
        }

    @pytest.mark.parametrize("effects", [{"a": 2, "b": 4}, {"a": 3}, {"a": 4, "b": 2}])
    def test_a_lost_or_doubled_row_ends_the_run(self, effects: dict[str, int]) -> None:
        with pytest.raises(RunError, match="the answers were"):
            compare(effects, {"a": 3, "b": 3}, completed=3, claims=3)

    def test_a_missing_claim_ends_the_run(self) -> None:
        with pytest.raises(RunError, match="2 completed claims for 3"):
            compare({"a": 3}, {"a": 3}, completed=2, claims=3)

    def test_equal_numbers_are_in_order(self) -> None:
        compare({"a": 3, "b": 4}, {"b": 4, "a": 3}, completed=3, claims=3)


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True


class TestLoad:
    def caller(self, *keys: bytes) -> tuple[Caller, Transport]:
        caller, transport = Caller(Round("/payments", "side-3", iter(keys))), Transport()
        caller.connection_made(transport)
        return caller, transport

    async def test_a_request_names_key_and_caller(self) -> None:
        _, transport = self.caller(b"k1")
        head, _, body = transport.written[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /payments HTTP/1.1\r\n")
        assert b"\r\nIdempotency-Key: k1" in head
        assert b"\r\nAuthorization: Bearer side-3\r\n" in head
        assert b"\r\nContent-Length: %d\r\n" % len(body) in head

    async def test_the_next_request_waits_for_the_whole_answer(self) -> None:
        caller, transport = self.caller(b"k1", b"k2")
        for part in (b"HTTP/1.1 201 Created\r\nContent-", b"Length: 4\r\n\r\nab", b"cd"):
            assert len(transport.written) == 1
            caller.data_received(part)
        assert len(transport.written) == 2
        assert not caller.round.wrong
        assert len(caller.round.latencies) == 1

    async def test_another_status_is_wrong(self) -> None:
        caller, transport = self.caller(b"k1")
        caller.data_received(b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n")
        assert caller.round.wrong == {"HTTP/1.1 409 Conflict": 1}
        assert transport.closed  # there are no more keys

    async def test_a_lost_connection_is_wrong(self) -> None:
        caller, _ = self.caller(b"k1")
        caller.connection_lost(None)
        assert caller.round.wrong == {"connection lost: None": 1}

    async def test_hanging_up_at_the_end_is_not(self) -> None:
        caller, _ = self.caller()
        caller.connection_lost(None)
        assert not caller.round.wrong
        assert caller.done.done()

    def test_given_keys_are_used_in_turn_for_a_time_and_once_without(self) -> None:
        once = keys_of({"keys": ["a", "b"], "seconds": None})
        assert list(once) == [b"a", b"b"]
        in_turn = keys_of({"keys": ["a", "b"], "seconds": 1.0})
        assert [next(in_turn) for _ in range(3)] == [b"a", b"b", b"a"]

    def test_without_keys_all_are_new(self) -> None:
        made = list(keys_of({"keys": None, "seconds": 0.01}))
        assert len(set(made)) == len(made) > 0


class TestFigures:
    def test_value_is_the_median_and_spread_the_extremes(self) -> None:
        found = figure("B1_bare_ratio_asyncpg", 0.9, 0.60004, 0.71).as_result()
        assert (found["low"], found["value"], found["high"]) == (0.6, 0.71, 0.9)
        assert found["rounds"] == [0.9, 0.6, 0.71]

    @pytest.mark.parametrize(
        ("kind", "value", "met", "bar"),
        [
            (Kind("x", "B1", "", at_least=0.7), 0.7, True, "≥ 0.7"),
            (Kind("x", "B1", "", at_least=0.7), 0.69, False, "≥ 0.7"),
            (Kind("x", "B2", "", "µs", at_most=60), 60, True, "≤ 60 µs"),
            (Kind("x", "B2", "", "µs", at_most=60), 60.1, False, "≤ 60 µs"),
            (Kind("x", "B9", "", at_most=0), 1, False, "≤ 0"),
            (Kind("x", "B1", ""), 0.1, None, "-"),
        ],
    )
    def test_bars(self, kind: Kind, value: float, met: bool | None, bar: str) -> None:
        assert kind.is_met(value) is met
        assert kind.bar == bar

    @pytest.mark.parametrize("turned", [False, True])
    def test_the_lower_of_two(self, turned: bool) -> None:
        pair = [
            figure("B1_bare_ratio_asyncpg", 0.8, 0.9),
            figure("B1_bare_ratio_sqlalchemy", 0.7, 0.6),
        ]
        one, other = reversed(pair) if turned else pair
        found = lower(one, other, "B1_bare_ratio")
        assert (found.kind.name, found.values) == ("B1_bare_ratio", (0.7, 0.6))

    def test_every_speed_rule_is_measured_or_said_not_to_be(self) -> None:
        rules = {kind.rule for kind in KINDS.values()} | {rule for rule, _ in NOT_MEASURED.values()}
        assert rules == {f"B{number}" for number in range(1, 10)}


class TestResults:
    def test_a_run_replaces_what_it_measured_and_nothing_else(self) -> None:
        first = results.merged(
            {}, [figure("B1_bare_ratio_asyncpg", 0.5), figure("B9_import", 20.0)], {}, ORIGIN
        )
        later = {**ORIGIN, "date": "2026-02-02T00:00:00+00:00", "command": "script/bench --only B9"}
        found = results.merged(first, [figure("B9_import", 30.0)], {}, later)
        assert found["B1_bare_ratio_asyncpg"] == first["B1_bare_ratio_asyncpg"]
        assert found["B9_import"]["value"] == 30.0
        assert found["B9_import"]["command"] == "script/bench --only B9"

    def test_what_was_left_out_is_no_longer_a_number(self) -> None:
        first = results.merged({}, [figure("B1_idemkit_ratio", 2.6)], {}, ORIGIN)
        found = results.merged(first, [], {"B1_idemkit_ratio": "no network"}, ORIGIN)
        assert found["B1_idemkit_ratio"]["value"] is None
        page = results.render(found)
        assert "| B1 | `B1_idemkit_ratio` | no network |" in page
        assert "2.60" not in page

    def test_order_is_that_of_the_rules(self) -> None:
        found = results.merged(
            {}, [figure("B9_import", 1.0), figure("B1_bare_ratio", 1.0)], {}, ORIGIN
        )
        assert [each["rule"] for each in found.values()] == sorted(
            each["rule"] for each in found.values()
        )

    def test_the_page(self) -> None:
        rates = Rates()
        rates.add("asgi-asyncpg", answers(70), counts=True)
        rates.add("bare-asyncpg", answers(100), counts=True)
        sides = rates.sides("asgi-asyncpg", "bare-asyncpg")
        ratios = [0.69, 0.69, 0.75]
        ours = Figure(KINDS["B1_bare_ratio_asyncpg"], ratios, sides)
        page = results.render(results.merged({}, [ours, figure("B9_import", 11.0)], {}, ORIGIN))
        for line in (
            "| B1 | guarded ÷ bare, asyncpg | ≥ 0.7 | 0.69 | 0.69 … 0.75 | 3 | **no** |",
            "| B9 | `import semel` in a new process | ≤ 50 ms | 11.0 ms | 11.0 … 11.0 | 1 | yes |",
            "| B1 | `asgi-asyncpg` | 35 | 1.0 | 7.0 | 100 | 70 | 0 |",
            "| B7 | `B7` | Semel has no operations yet. |",
            "B1, B9: `script/bench`, 2026-01-02T03:04:05+00:00, commit 0123456789ab.",
            "In idemkit's environment: idemkit 1.0.2.",
        ):
            assert line in page.splitlines()
        assert "$" not in page

    def test_runs_are_told_apart(self) -> None:
        later = {**ORIGIN, "date": "2026-02-02T00:00:00+00:00"}
        first = results.merged({}, [figure("B1_bare_ratio", 0.5)], {}, ORIGIN)
        page = results.render(results.merged(first, [figure("B9_import", 1.0)], {}, later))
        assert "B1: `script/bench`, 2026-01-02" in page
        assert "B9: `script/bench`, 2026-02-02" in page

    def test_what_is_written_is_read_again(self, tmp_path: Path) -> None:
        folder = tmp_path / "new"
        assert results.read(folder) == {}
        found = results.merged({}, [figure("B8_raw_digest", 5.9)], {}, ORIGIN)
        results.write(folder, found)
        assert results.read(folder) == found
        assert (folder / "RESULTS.md").read_text(encoding="utf-8") == results.render(found)


def test_bodies_of_the_fingerprint_have_the_size_that_the_rule_names() -> None:
    for body in bodies().values():
        assert SIZE <= len(body) < SIZE * 1.2
        assert lossy(body)


def test_side_names_and_lengths_are_their_own() -> None:
    assert all(name == side.name for name, side in SIDES.items())
    assert rounds.QUICK.seconds < rounds.FULL.seconds


def test_samples_are_counted_by_function() -> None:
    def frames() -> Iterator[None]:
        import sys  # noqa: PLC0415 - only here

        samples.take(0, sys._getframe())
        yield

    samples = Samples()
    list(frames())
    table = samples.table(3)
    assert table.startswith("1 samples\n")
    assert "frames (tests/unit/test_bench.py)" in table.splitlines()[3]
