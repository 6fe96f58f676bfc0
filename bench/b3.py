"""B3: replays over HTTP against a bare handler that reads one row by its primary key.

`replay-…` remembers the keys as settled, so that one read answers; `unseen-…` remembers
none, as a process does that sees a key for the first time: claim first, then look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from bench.figures import KINDS, Figure
from bench.processes import Load, Server, admin, fresh_database, make_tables, serving
from bench.rounds import Rates, check_effects, measure
from bench.run import Run
from bench.sides import SIDES, Side

KEYS = tuple(f"settled-{number:04}" for number in range(1000))
DRIVERS = ("asyncpg", "psycopg", "sqlalchemy")
BODY = '{"paid":500}'
INSERT = "INSERT INTO stored (key, body) SELECT unnest(%s::text[]), %s"


def measure_all(run: Run) -> Iterator[Figure]:
    """Measure each driver."""
    for driver in DRIVERS:
        run.say(f"B3 {driver}")
        read, replay, unseen = (f"{kind}-{driver}" for kind in ("read", "replay", "unseen"))
        with fresh_database() as database:
            asyncio.run(make_tables(database))
            rates = _rates(run, [SIDES[name] for name in (read, replay, unseen)], database)
        for name, upper in (("one_read", replay), ("elsewhere", unseen)):
            kind = KINDS[f"B3_{name}_{driver}"]
            yield Figure(kind, rates.ratios(upper, read), rates.sides(upper, read))


def _rates(run: Run, sides: Sequence[Side], database: str) -> Rates:
    with serving(sides, database) as servers:
        settle_keys(run.load, servers, database)
        rates = measure(run.load, servers, run.length, run.say, KEYS)
    guarded = [server.caller for server in servers if server.side.guarded]
    check_effects(database, dict.fromkeys(guarded, len(KEYS)), len(KEYS) * len(guarded))
    return rates


def settle_keys(load: Load, servers: Sequence[Server], database: str) -> None:
    """Pay once under each key, and store what the bare handler reads."""
    with admin(database) as connection:
        connection.execute(INSERT, (list(KEYS), BODY))
    for server in servers:
        if server.side.guarded:
            load.run(server, None, KEYS)
