"""B1: fresh keys over HTTP, guarded against bare and against idemkit, one row each."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import peer
from bench.figures import KINDS, Figure, lower
from bench.processes import RunError, fresh_database, make_tables, serving
from bench.rounds import Rates, check_effects, measure
from bench.run import Run
from bench.sides import IDEMKIT, SIDES, Side


@dataclass(frozen=True, slots=True)
class Group:
    """What is measured in turn, in one database.

    Attributes:
        guarded: the guarded side.
        others: what it is compared with, by the figure's name.
    """

    guarded: str
    others: dict[str, str]


GROUPS = (
    Group(
        "asgi-asyncpg",
        {
            "B1_bare_ratio_asyncpg": "bare-asyncpg",
            "B1_autocommit_ratio_asyncpg": "autocommit-asyncpg",
            "B1_idemkit_ratio": IDEMKIT.name,
        },
    ),
    Group(
        "asgi-sqlalchemy-asyncpg",
        {"B1_bare_ratio_sqlalchemy": "bare-sqlalchemy-asyncpg"},
    ),
    Group(
        "asgi-psycopg",
        {
            "B1_bare_ratio_psycopg": "bare-psycopg",
            "B1_autocommit_ratio_psycopg": "autocommit-psycopg",
        },
    ),
    Group(
        "asgi-sqlalchemy-psycopg",
        {"B1_bare_ratio_sqlalchemy_psycopg": "bare-sqlalchemy-psycopg"},
    ),
    Group(
        "fastapi-sqlalchemy-asyncpg",
        {"B1_bare_ratio_fastapi": "bare-fastapi-sqlalchemy-asyncpg"},
    ),
)


def measure_all(run: Run) -> Iterator[Figure]:
    """Measure every group."""
    by_name: dict[str, Figure] = {}
    for group in GROUPS:
        others = dict(group.others)
        if reason := _why_not(group):
            for name in others:
                run.leave_out(name, reason)
            continue
        if IDEMKIT.name in others.values() and not _peer_is_ready(run):
            del others["B1_idemkit_ratio"]
        for figure in _measure(run, group.guarded, others):
            by_name[figure.kind.name] = figure
            yield figure
    yield lower(
        by_name["B1_bare_ratio_asyncpg"], by_name["B1_bare_ratio_sqlalchemy"], "B1_bare_ratio"
    )


def _measure(run: Run, guarded: str, others: dict[str, str]) -> Iterator[Figure]:
    run.say(f"B1 {guarded}")
    sides = [SIDES[name] for name in (guarded, *others.values())]
    with fresh_database() as database:
        asyncio.run(make_tables(database))
        if IDEMKIT in sides:
            peer.make_tables(database)
        rates = _rates(run, sides, database)
    for name, other in others.items():
        yield Figure(KINDS[name], rates.ratios(guarded, other), rates.sides(guarded, other))


def _rates(run: Run, sides: Sequence[Side], database: str) -> Rates:
    with serving(sides, database) as servers:
        rates = measure(run.load, servers, run.length, run.say)
        answers = rates.answers
        check_effects(
            database,
            {server.caller: answers[server.name] for server in servers},
            sum(answers[side.name] for side in sides if side.guarded),
        )
    return rates


def _why_not(group: Group) -> str | None:
    if group.guarded.startswith("fastapi"):
        try:
            importlib.import_module("semel.fastapi")
        except ImportError as error:
            return f"semel.fastapi can not be imported: {error}"
    return None


def _peer_is_ready(run: Run) -> bool:
    try:
        peer.prepare(run.say)
    except RunError as error:
        run.leave_out("B1_idemkit_ratio", str(error))
        return False
    return True
