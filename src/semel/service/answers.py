"""The service's answers: payments as JSON, and problems of its own (RFC 9457)."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from semel.errors import AccessRefusedError, SemelError
from semel.service.faults import Plan
from semel.service.payments import Payment


def created(payment: Payment) -> Response:
    """Return the answer to a new payment."""
    body = {"payment_id": payment.id, "amount": payment.amount, "currency": payment.currency}
    return answer(body, HTTPStatus.CREATED, {"Location": f"/payments/{payment.id}"})


def spoiled(plan: Plan, response: Response) -> Response:
    """Return the answer as the test wants it."""
    status = plan.status
    if status is not None and status >= HTTPStatus.BAD_REQUEST:
        response = problem(status, "the test asked for this status")
    elif status is not None:
        response.status_code = status
    if status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        response.body = b""
        del response.headers["content-length"]
    if plan.sets_cookies:
        response.headers.append("Set-Cookie", "session=one; HttpOnly")
        response.headers.append("Set-Cookie", "theme=two")
    return response


def as_json(payment: Payment) -> str:
    """Return a payment as its owner sees it; `metadata` is the text that came."""
    fields = json.dumps(
        {
            "payment_id": payment.id,
            "amount": payment.amount,
            "currency": payment.currency,
            "created_at": payment.created_at,
        }
    )
    return f'{fields[:-1]}, "metadata": {payment.metadata or "null"}}}'


def answer(
    body: dict[str, Any], status: int = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    """Return a JSON answer."""
    text = json.dumps(body, separators=(",", ":"))
    return Response(text, status, headers, media_type="application/json")


def problem(
    status: int, detail: str, headers: dict[str, str] | None = None, *, retryable: bool = False
) -> Response:
    """Return a problem of the service's own (RFC 9457)."""
    body = {
        "type": "about:blank",
        "title": phrase(status),
        "status": status,
        "detail": detail,
        "retryable": retryable,
    }
    return Response(json.dumps(body), status, headers, media_type="application/problem+json")


def phrase(status: int) -> str:
    """Return the name of a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


async def refused_by_http(_request: Request, error: Exception) -> Response:
    """Answer for a route, a method or a payment that is not there."""
    assert isinstance(error, HTTPException)  # noqa: S101 - Starlette's types say less
    return problem(error.status_code, error.detail, dict(error.headers or {}))


async def refused_to_caller(_request: Request, error: Exception) -> Response:
    """Answer for a caller without a token."""
    assert isinstance(error, AccessRefusedError)  # noqa: S101 - Starlette's types say less
    return problem(error.status, error.detail, dict(error.headers))


async def store_failed(_request: Request, _error: Exception) -> Response:
    """Answer while the database is away, or too busy with others."""
    return problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the store can not take the request now: try again later",
        {"Retry-After": "1"},
        retryable=True,
    )


async def failed(_request: Request, error: Exception) -> Response:
    """Answer for a failure that nobody planned; the server logs it."""
    detail = "the service failed"
    if isinstance(error, SemelError):
        detail = f"{detail}: {type(error).__name__}"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail, retryable=True)
