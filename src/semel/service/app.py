"""The application: routes, and the order in which a request meets its checks.

A `POST /payments` goes through the guard, which is a middleware of that route
alone: the key's syntax first, then who calls (`scope`), then whether the body is
a payment at all (`authorize`: what is refused there is not stored, so the client
may correct it and use the same key), and only then the claim. The handler writes
the payment on the claim's transaction.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from http import HTTPStatus
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from semel.asgi import IdempotencyMiddleware
from semel.errors import (
    AccessRefusedError,
    StoreConflictError,
    StoreUnavailableError,
)
from semel.events import logger
from semel.guard import AsyncGuard
from semel.opening import open_async_store
from semel.service import faults, payments
from semel.service.access import Clients
from semel.service.answers import (
    answer,
    as_json,
    created,
    failed,
    refused_by_http,
    refused_to_caller,
    spoiled,
    store_failed,
)
from semel.service.doorway import Doorway
from semel.service.orders import OrderRefusedError, read_order
from semel.service.payments import Payment
from semel.service.settings import VARIABLE, Settings
from semel.web.request import Request as WebRequest

LISTED = 50

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def create_app(settings: Settings) -> Starlette:
    """Return the service; it connects when the server starts it.

    Raises:
        UsageError: settings that can not work.
    """
    return Service(settings).app()


def from_environment() -> Starlette:
    """Return the service as a worker process finds its settings."""
    return create_app(Settings.from_json(os.environ[VARIABLE]))


class Service:
    """What the endpoints share."""

    def __init__(self, settings: Settings) -> None:
        """Open nothing yet."""
        store = open_async_store(settings.store, tables=settings.tables)
        self._guard = AsyncGuard(store, settings.options)
        self._payments = payments.payments_in(store)
        self._clients = Clients(settings.clients)
        self._faults = faults.Faults(settings.holds)
        self._log = HandlerLog(settings.handler_log)

    def app(self) -> Starlette:
        """Return the ASGI application."""
        guarded = Middleware(
            IdempotencyMiddleware, self._guard, scope=self.caller, authorize=self.examine
        )
        outside = Middleware(Doorway)
        routes = [
            Route("/payments", self.create, methods=["POST"], middleware=[outside, guarded]),
            Route("/payments", self.known(self.index)),
            Route("/payments/{payment_id}", self.known(self.show)),
        ]
        if self._faults.holds is not None:
            routes += [
                # The same operation at a second address, to see where a key counts.
                Route(
                    "/test/payments", self.create, methods=["POST"], middleware=[outside, guarded]
                ),
                Route("/test/holds", self.known(self.holds)),
                Route("/test/holds/{name}/release", self.known(self.release), methods=["POST"]),
            ]
        return Starlette(
            routes=routes,
            lifespan=self.lifespan,
            exception_handlers={
                HTTPException: refused_by_http,
                AccessRefusedError: refused_to_caller,
                StoreUnavailableError: store_failed,
                StoreConflictError: store_failed,
                Exception: failed,
            },
        )

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Connect before the first request and let go after the last one.

        A store that is down now may be back soon: requests are answered with 503
        until then.
        """
        with self._log, _ending_with_supervisor():
            try:
                await self._guard.open()
            except StoreUnavailableError as error:
                logger.warning("the store can not be reached yet: %s", error)
            try:
                yield
            finally:
                await self._guard.aclose()

    def caller(self, request: WebRequest) -> str:
        """Return who calls, for the guard."""
        return self._clients.of(request.headers.raw)

    async def examine(self, request: WebRequest) -> bool:
        """Refuse what can not become a payment, before a key is spent on it."""
        try:
            self._faults.plan(request.headers.get_all(faults.HEADER))
            read_order(await request.body())
        except faults.FaultUnknownError as error:
            raise AccessRefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error
        except OrderRefusedError as error:
            raise AccessRefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        return True

    def known(self, endpoint: Endpoint) -> Endpoint:
        """Let only clients with a token through to an endpoint."""

        @wraps(endpoint)
        async def checked(request: Request) -> Response:
            request.state.client = self._clients.of(request.headers.raw)
            return await endpoint(request)

        return checked

    async def create(self, request: Request) -> Response:
        """`POST /payments`: make a payment, once for each key."""
        claim = self._guard.current()
        self._log.write(claim.key_digest)
        plan = self._faults.plan(request.headers.getlist(faults.HEADER))
        order = read_order(await request.body())
        payment = Payment(
            id=payments.new_id(),
            client=self._clients.of(request.headers.raw),
            amount=order.amount,
            currency=order.currency,
            metadata=order.metadata,
            key_digest=claim.key_digest,
        )
        await plan.before()
        await self._payments.add(claim.tx, payment)
        await plan.after()
        return spoiled(plan, created(payment))

    async def show(self, request: Request) -> Response:
        """`GET /payments/{payment_id}`: one of the client's own."""
        found = await self._payments.find(request.state.client, request.path_params["payment_id"])
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return Response(as_json(found), media_type="application/json")

    async def index(self, request: Request) -> Response:
        """`GET /payments`: the client's newest; `?count=true`: how many there are in all."""
        if request.query_params.get("count") == "true":
            return answer({"count": await self._payments.count()})
        own = await self._payments.newest(request.state.client, LISTED)
        listed = ",".join(as_json(payment) for payment in own)
        return Response(f'{{"payments":[{listed}]}}', media_type="application/json")

    async def holds(self, _request: Request) -> Response:
        """`GET /test/holds`: which requests wait inside their handlers."""
        waiting = self._faults.holds.waiting() if self._faults.holds else []
        return answer({"holds": [{"name": held.name, "process": held.process} for held in waiting]})

    async def release(self, request: Request) -> Response:
        """`POST /test/holds/{name}/release`: let them go on."""
        count = self._faults.holds.release(request.path_params["name"]) if self._faults.holds else 0
        if not count:
            raise HTTPException(HTTPStatus.NOT_FOUND, "nobody waits for this name")
        return answer({"released": count})


@contextmanager
def _ending_with_supervisor() -> Iterator[None]:
    """End this process at once when the supervisor that started it is killed.

    Else its workers would go on, and keep the port from a service started anew.
    """
    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(supervisor.sentinel, os._exit, 1)
    try:
        yield
    finally:
        loop.remove_reader(supervisor.sentinel)


class HandlerLog:
    """One line for each handler that starts: its key's short digest.

    Outside every transaction, so that a handler is seen whatever becomes of it.
    Lines of several processes do not mix: each is one write of an append.
    """

    def __init__(self, path: str | None) -> None:
        """Open nothing yet."""
        self._path = path
        self._file: int | None = None

    def __enter__(self) -> None:
        """Open the file, if there is one to write."""
        if self._path is not None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def write(self, digest: str) -> None:
        """Append a line."""
        if self._file is not None:
            os.write(self._file, f"{digest}\n".encode())
