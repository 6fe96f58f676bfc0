"""Ten services that each break one rule, and one that knows no keys at all.

Run as a process: `python broken_shops.py --fault NAME --port N --database FILE`; the fault
`none` is the service that is right.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

import uvicorn
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from check.shop import SLOW, ProvokedError, RefusedError, Shop, problem, provoke


class CheckThenInsert(Shop):
    """Looks whether the key is there, and inserts it when all is done."""

    async def answer(self, request: Request, body: bytes) -> Response:
        scope, key, payload = self.scope_of(request), self.key_of(request), self.read(body)
        fingerprint = self.fingerprint(request, body)
        with self.connected() as connection:
            known = self.look_up(connection, (scope, key))
        if known is not None:
            return self.repeat(known, fingerprint)
        await asyncio.sleep(0)
        return await asyncio.to_thread(
            self.execute, (scope, key), fingerprint, payload, request.headers.get("x-test", "")
        )

    def execute(
        self, identity: tuple[str, str], fingerprint: bytes, payload: dict[str, Any], test: str
    ) -> Response:
        with self.connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            response = self.have_effect(connection, payload, test)
            self.keep(connection, identity, fingerprint, response)
            connection.execute("COMMIT")
            return response


class KeyGlobal(Shop):
    """Forgets whose key it is."""

    def scope_of(self, request: Request) -> str:
        super().scope_of(request)
        return "everybody"


class BodyNotCompared(Shop):
    """A key is a key, whatever else the request says."""

    def normal(self, body: bytes) -> str:
        del body
        return ""


class FailureFrozen(Shop):
    """Keeps a 500 for ever."""

    def execute(
        self, identity: tuple[str, str], fingerprint: bytes, payload: dict[str, Any], test: str
    ) -> Response:
        try:
            return super().execute(identity, fingerprint, payload, test)
        except ProvokedError:
            response = problem(500, "failed")
            with self.connected() as connection:
                self.keep(connection, identity, fingerprint, response)
            return response


class LockForEver(Shop):
    """Claims the key in a transaction of its own, and has no lease."""

    def execute(
        self, identity: tuple[str, str], fingerprint: bytes, payload: dict[str, Any], test: str
    ) -> Response:
        with self.connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            known = self.look_up(connection, identity)
            if known is not None:
                return self.repeat(known, fingerprint)
            connection.execute(
                "INSERT INTO kept VALUES (?, ?, ?, NULL, '[]', '')", [*identity, fingerprint]
            )
            connection.execute("COMMIT")
            try:
                connection.execute("BEGIN IMMEDIATE")
                response = self.have_effect(connection, payload, test)
                self.keep(connection, identity, fingerprint, response)
                connection.execute("COMMIT")
            except ProvokedError:
                connection.execute("ROLLBACK")
                connection.execute("DELETE FROM kept WHERE scope = ? AND key = ?", identity)
                raise
            return response


class AnswerBeforeStored(Shop):
    """Sends its answer, then writes it down. Meanwhile the key is held in memory."""

    async def answer(self, request: Request, body: bytes) -> Response:
        scope, key, payload = self.scope_of(request), self.key_of(request), self.read(body)
        fingerprint = self.fingerprint(request, body)
        identity = (scope, key)
        if identity in self.running:
            raise RefusedError(409, "in-flight", retry_after="1")
        self.running.add(identity)
        try:
            with self.connected() as connection:
                known = self.look_up(connection, identity)
                if known is not None:
                    self.running.discard(identity)
                    return self.repeat(known, fingerprint)
                connection.execute("BEGIN IMMEDIATE")
                response = self.have_effect(connection, payload, "")
                test = request.headers.get("x-test", "")
                provoke(test)
                connection.execute("COMMIT")
            if "slow" in test:
                await asyncio.sleep(SLOW)
            if "cookie" in test:
                response.set_cookie("session", secrets.token_hex(8))
        except BaseException:
            self.running.discard(identity)
            raise

        async def keep_later() -> None:
            await asyncio.sleep(0.2)
            with self.connected() as connection:
                self.keep(connection, identity, fingerprint, response)
            self.running.discard(identity)

        response.background = BackgroundTask(keep_later)
        return response


class CookieReplayed(Shop):
    """Keeps all headers."""

    def kept_headers(self, response: Response) -> list[list[str]]:
        return [
            [name, value] for name, value in response.headers.items() if name != "content-length"
        ]


class QueryIgnored(Shop):
    """Compares the path, but not what comes after it."""

    def query_of(self, request: Request) -> list[str]:
        del request
        return []


class BytesOnly(Shop):
    """Compares bodies byte by byte."""

    def normal(self, body: bytes) -> str:
        return body.hex()


class FloatsRounded(Shop):
    """Compares amounts in cents."""

    def normal(self, body: bytes) -> str:
        payload = json.loads(body)
        return json.dumps(payload | {"amount": round(float(payload["amount"]), 2)}, sort_keys=True)


class Naive(Shop):
    """Knows no keys: what most services are before anything is added."""

    async def answer(self, request: Request, body: bytes) -> Response:
        self.scope_of(request)
        payload = self.read(body)
        test = request.headers.get("x-test", "")
        with self.connected() as connection:
            provoke(test)
            response = self.have_effect(connection, payload, "")
        if "slow" in test:
            await asyncio.sleep(SLOW)
        return response


SHOPS: dict[str, type[Shop]] = {
    "none": Shop,
    "check-then-insert": CheckThenInsert,
    "key-global": KeyGlobal,
    "body-not-compared": BodyNotCompared,
    "failure-frozen": FailureFrozen,
    "lock-for-ever": LockForEver,
    "answer-before-stored": AnswerBeforeStored,
    "cookie-replayed": CookieReplayed,
    "query-ignored": QueryIgnored,
    "bytes-only": BytesOnly,
    "floats-rounded": FloatsRounded,
    "naive": Naive,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=SHOPS, default="none")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--database", type=Path, required=True)
    arguments = parser.parse_args()
    shop = SHOPS[arguments.fault](str(arguments.database))
    uvicorn.run(shop.app(), host="127.0.0.1", port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
