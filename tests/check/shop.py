"""A service that is right: a payment and its key in one transaction of one SQLite file.

The header `X-Test` makes it fail (`fail`), slow after its effect (`slow`) or set a cookie
(`cookie`). `GET /payments/count` counts payments. `broken_shops.py` has the wrong ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

CLIENTS = {"Bearer token-a": "a", "Bearer token-b": "b"}
SLOW = 0.5
MAX_KEY = 255

SCHEMA = """
CREATE TABLE IF NOT EXISTS payment (id INTEGER PRIMARY KEY, reference TEXT);
CREATE TABLE IF NOT EXISTS kept (
    scope TEXT, key TEXT, fingerprint BLOB, status INTEGER, headers TEXT, body BLOB,
    PRIMARY KEY (scope, key)
);
"""


@dataclass(frozen=True)
class Kept:
    """What a key stands for. A status of None: it is not known yet."""

    fingerprint: bytes
    status: int | None
    headers: list[list[str]]
    body: bytes


class RefusedError(Exception):
    def __init__(self, status: int, name: str, **headers: str) -> None:
        self.answer = problem(status, name, **headers)


class ProvokedError(Exception):
    pass


def provoke(test: str) -> None:
    if "fail" in test:
        raise ProvokedError


def problem(status: int, name: str, **headers: str) -> Response:
    body = {"type": f"urn:shop:{name}", "title": name, "status": status}
    named = {header.replace("_", "-"): value for header, value in headers.items()}
    return JSONResponse(body, status, named, media_type="application/problem+json")


class Shop:
    """Right in every respect."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.running: set[tuple[str, str]] = set()
        with self.connected() as connection:
            connection.executescript(SCHEMA)
            connection.execute("PRAGMA journal_mode=WAL")

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/payments/count", self.count),
                Route("/payments", self.pay, methods=["POST"]),
                Route("/refunds", self.pay, methods=["POST"]),
            ]
        )

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.database, timeout=30, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous=OFF")
            yield connection
        finally:
            connection.close()

    async def count(self, _request: Request) -> Response:
        with self.connected() as connection:
            (count,) = connection.execute("SELECT count(*) FROM payment").fetchone()
        return JSONResponse({"count": count})

    async def pay(self, request: Request) -> Response:
        try:
            return await self.answer(request, await request.body())
        except RefusedError as error:
            return error.answer
        except ProvokedError:
            return problem(500, "failed")

    async def answer(self, request: Request, body: bytes) -> Response:
        scope = self.scope_of(request)
        key = self.key_of(request)
        payload = self.read(body)
        fingerprint = self.fingerprint(request, body)
        identity = (scope, key)
        if identity in self.running:
            raise RefusedError(409, "in-flight", retry_after="1")
        self.running.add(identity)
        try:
            return await asyncio.to_thread(
                self.execute, identity, fingerprint, payload, request.headers.get("x-test", "")
            )
        finally:
            self.running.discard(identity)

    def scope_of(self, request: Request) -> str:
        client = CLIENTS.get(request.headers.get("authorization", ""))
        if client is None:
            raise RefusedError(401, "unknown-client", www_authenticate="Bearer")
        return client

    def key_of(self, request: Request) -> str:
        lines = request.headers.getlist("idempotency-key")
        if len(lines) != 1:
            raise RefusedError(400, "key-missing" if not lines else "key-malformed")
        key = lines[0]
        if key.startswith('"'):
            if len(key) < 2 or not key.endswith('"'):
                raise RefusedError(400, "key-malformed")
            key = key[1:-1]
        if not 1 <= len(key) <= MAX_KEY or any(not "!" <= one <= "~" or one in '",' for one in key):
            raise RefusedError(400, "key-malformed")
        return key

    def read(self, body: bytes) -> dict[str, Any]:
        try:
            payload = json.loads(body, parse_float=Decimal)
        except ValueError:
            payload = None
        if not isinstance(payload, dict) or not isinstance(payload.get("amount"), int | Decimal):
            raise RefusedError(422, "no-payment")
        return payload

    def fingerprint(self, request: Request, body: bytes) -> bytes:
        parts = [request.url.path, *self.query_of(request), self.normal(body)]
        return hashlib.sha256(json.dumps(parts).encode()).digest()

    def query_of(self, request: Request) -> list[str]:
        return [f"{name}={value}" for name, value in sorted(parse_qsl(request.url.query))]

    def normal(self, body: bytes) -> str:
        return spelled(json.loads(body, parse_float=Decimal))

    def execute(
        self, identity: tuple[str, str], fingerprint: bytes, payload: dict[str, Any], test: str
    ) -> Response:
        """Everything in one transaction."""
        with self.connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            known = self.look_up(connection, identity)
            if known is not None:
                return self.repeat(known, fingerprint)
            response = self.have_effect(connection, payload, test)
            self.keep(connection, identity, fingerprint, response)
            connection.execute("COMMIT")
            return response

    def look_up(self, connection: sqlite3.Connection, identity: tuple[str, str]) -> Kept | None:
        row = connection.execute(
            "SELECT fingerprint, status, headers, body FROM kept WHERE scope = ? AND key = ?",
            identity,
        ).fetchone()
        return Kept(row[0], row[1], json.loads(row[2]), row[3]) if row else None

    def repeat(self, known: Kept, fingerprint: bytes) -> Response:
        if known.fingerprint != fingerprint:
            raise RefusedError(422, "key-reused")
        if known.status is None:
            raise RefusedError(409, "in-flight", retry_after="1")
        response = Response(known.body, known.status)
        response.raw_headers.extend(
            (name.encode(), value.encode()) for name, value in known.headers
        )
        response.headers["Idempotent-Replayed"] = "true"
        return response

    def have_effect(
        self, connection: sqlite3.Connection, payload: dict[str, Any], test: str
    ) -> Response:
        reference = secrets.token_hex(8)
        cursor = connection.execute("INSERT INTO payment (reference) VALUES (?)", [reference])
        if "slow" in test:
            time.sleep(SLOW)
        provoke(test)
        response = JSONResponse(
            {"id": cursor.lastrowid, "reference": reference, "amount": str(payload["amount"])}, 201
        )
        response.headers["Location"] = f"/payments/{cursor.lastrowid}"
        if "cookie" in test:
            response.set_cookie("session", secrets.token_hex(8))
        return response

    def kept_headers(self, response: Response) -> list[list[str]]:
        names = {"content-type", "location"}
        return [[name, value] for name, value in response.headers.items() if name in names]

    def keep(
        self,
        connection: sqlite3.Connection,
        identity: tuple[str, str],
        fingerprint: bytes,
        response: Response,
    ) -> None:
        headers = json.dumps(self.kept_headers(response))
        connection.execute(
            "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?)",
            [*identity, fingerprint, response.status_code, headers, bytes(response.body)],
        )


def spelled(value: Any) -> str:
    """One spelling for each JSON value, no two values alike."""
    match value:
        case dict():
            members = sorted((key, spelled(member)) for key, member in value.items())
            return "{" + ",".join(f"{json.dumps(key)}:{member}" for key, member in members) + "}"
        case list():
            return "[" + ",".join(spelled(element) for element in value) + "]"
        case bool() | None | str():
            return json.dumps(value)
        case _:
            sign, digits, exponent = Decimal(value).as_tuple()
            text = "".join(map(str, digits)).lstrip("0")
            stripped = text.rstrip("0")
            power = int(exponent) + len(text) - len(stripped) if stripped else 0
            return f"{'-' if sign and stripped else ''}{stripped or '0'}e{power}"
