"""The sides of the comparisons: applications under names that `--profile` knows too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ON_ASYNCPG: Mapping[str, str] = {"SEMEL_BENCH_DRIVER": "asyncpg"}
ON_PSYCOPG: Mapping[str, str] = {"SEMEL_BENCH_DRIVER": "psycopg"}


@dataclass(frozen=True, slots=True)
class Side:
    """One application as it is measured.

    Attributes:
        name: what it is called in the results.
        app: module of `bench.apps` and name in it: `on_psycopg:bare`.
        path: where its requests go.
        environment: what is set for it.
        guarded: whether Semel's claims are made.
        settled: whether its requests have keys that are settled.
    """

    name: str
    app: str
    path: str = "/payments"
    environment: Mapping[str, str] = field(default_factory=dict)
    guarded: bool = False
    settled: bool = False


def _pair(name: str, app: str, environment: Mapping[str, str]) -> tuple[Side, Side]:
    kind, _, _ = name.partition("-")
    plain = name if kind == "fastapi" else name.removeprefix("asgi-")
    return (
        Side(f"bare-{plain}", f"{app}:bare", environment=environment),
        Side(name, f"{app}:guarded", environment=environment, guarded=True),
    )


def _replays(driver: str, app: str, environment: Mapping[str, str]) -> tuple[Side, Side, Side]:
    forgetful = {**environment, "SEMEL_BENCH_REMEMBERED": "0"}
    guarded = f"{app}:guarded"
    return (
        Side(f"read-{driver}", f"{app}:bare", "/stored", environment, settled=True),
        Side(f"replay-{driver}", guarded, "/payments", environment, guarded=True, settled=True),
        Side(f"unseen-{driver}", guarded, "/payments", forgetful, guarded=True, settled=True),
    )


IDEMKIT = Side("idemkit-asyncpg", "on_idemkit:guarded")
SIDES: Mapping[str, Side] = {
    side.name: side
    for side in (
        *_pair("asgi-asyncpg", "on_asyncpg", {}),
        *_pair("asgi-psycopg", "on_psycopg", {}),
        *_pair("asgi-sqlalchemy-asyncpg", "on_sqlalchemy", ON_ASYNCPG),
        *_pair("asgi-sqlalchemy-psycopg", "on_sqlalchemy", ON_PSYCOPG),
        *_pair("fastapi-sqlalchemy-asyncpg", "on_fastapi", ON_ASYNCPG),
        Side("autocommit-asyncpg", "on_asyncpg:bare", "/autocommit"),
        Side("autocommit-psycopg", "on_psycopg:bare", "/autocommit"),
        *_replays("asyncpg", "on_asyncpg", {}),
        *_replays("psycopg", "on_psycopg", {}),
        *_replays("sqlalchemy", "on_sqlalchemy", ON_ASYNCPG),
        IDEMKIT,
    )
}
