"""Rates over HTTP: all sides in each round, in turn, and the ratio within each round.

What disturbs a round disturbs its sides alike, so the median of the ratios is steadier
than the ratio of two rates. Every row that an answer promised is counted afterwards.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.apps.common import COUNT
from bench.processes import Answers, Load, RunError, Say, Server, admin

CLAIMS = "SELECT count(*) FROM semel_claim WHERE status = 1"


@dataclass(frozen=True, slots=True)
class Length:
    """How long is measured.

    Attributes:
        rounds: how many rounds.
        seconds: of load for each side in each round.
        warm_up: seconds of load for each side before the first round.
    """

    rounds: int
    seconds: float
    warm_up: float


FULL = Length(7, 3.0, 1.5)
QUICK = Length(2, 0.4, 0.2)


class Rates:
    """What each side gave in each round.

    Attributes:
        rounds: by the side's name, its part of each round.
        answers: by the side's name, all its answers, those of the warm-up too.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.rounds: dict[str, list[Answers]] = {}
        self.answers: dict[str, int] = {}

    def add(self, name: str, answers: Answers, *, counts: bool) -> None:
        """Add one side's part of a round."""
        self.answers[name] = self.answers.get(name, 0) + answers.answers
        if counts:
            self.rounds.setdefault(name, []).append(answers)

    def ratios(self, upper: str, lower: str) -> list[float]:
        """Return one side's rate as a multiple of another's, for each round."""
        pairs = zip(self.rounds[upper], self.rounds[lower], strict=True)
        return [one.rate / other.rate for one, other in pairs]

    def sides(self, *names: str) -> dict[str, dict[str, float | None]]:
        """Return the medians of some sides, for the results."""
        return {
            name: {**_medians(self.rounds[name]), "answers": self.answers[name], "errors": 0}
            for name in names
        }


def measure(
    load: Load,
    servers: Sequence[Server],
    length: Length,
    say: Say,
    keys: Sequence[str] | None = None,
) -> Rates:
    """Let all sides run in turn."""
    rates = Rates()
    for server in servers:
        rates.add(server.name, load.run(server, length.warm_up, keys), counts=False)
    for number in range(length.rounds):
        first = number % len(servers)
        for server in [*servers[first:], *servers[:first]]:
            rates.add(server.name, load.run(server, length.seconds, keys), counts=True)
        told = (f"{server.name} {rates.rounds[server.name][-1].rate:.0f}/s" for server in servers)
        say(f"  round {number + 1}: {', '.join(told)}")
    return rates


def check_effects(database: str, expected: Mapping[str, int], claims: int) -> None:
    """Make sure that every answer has its row, and none has two.

    Args:
        database: the run's own.
        expected: by caller, rows of the application.
        claims: completed claims of Semel's.

    Raises:
        RunError: the numbers differ.
    """
    with admin(database) as connection:
        effects = dict(connection.execute(COUNT).fetchall())
        row = connection.execute(CLAIMS).fetchone()
    compare(effects, expected, row[0] if row else 0, claims)


def compare(
    effects: Mapping[str, int], expected: Mapping[str, int], completed: int, claims: int
) -> None:
    """Compare what is in the database with what was answered; see `check_effects`."""
    if effects != expected:
        raise RunError(f"the rows in the database are {effects}, the answers were {expected}")
    if completed != claims:
        raise RunError(f"{completed} completed claims for {claims} guarded answers")


def _medians(rounds: Sequence[Answers]) -> dict[str, float | None]:
    cpu = [one.cpu_us for one in rounds if one.cpu_us is not None]
    return {
        "per_second": round(statistics.median(one.rate for one in rounds)),
        "p50_ms": round(statistics.median(one.p50_ms for one in rounds), 1),
        "p99_ms": round(statistics.median(one.p99_ms for one in rounds), 1),
        "server_cpu_us": round(statistics.median(cpu)) if cpu else None,
    }
