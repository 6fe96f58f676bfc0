"""What operators see of claims: digests, states and times, never keys or bodies."""

from __future__ import annotations

from dataclasses import dataclass

from semel.core.model import Mode, Status
from semel.store.statement import Statement, Steps


@dataclass(frozen=True, slots=True)
class Listed:
    """A claim as operators see it: digests, never keys or bodies."""

    scope: bytes
    key: bytes
    mode: Mode
    status: Status
    token: int
    created_at: float
    lease_expires_at: float | None
    expires_at: float
    answer_status: int | None
    answer_bytes: int | None


def list_claims(limit: int) -> Steps[list[Listed]]:
    """List the newest claims first."""
    rows = yield Statement("claim_list", {"limit": limit})
    return [
        Listed(
            scope=bytes(row[0]),
            key=bytes(row[1]),
            mode=Mode(row[2]),
            status=Status(row[3]),
            token=row[4],
            created_at=row[5],
            lease_expires_at=row[6],
            expires_at=row[7],
            answer_status=row[8],
            answer_bytes=row[9],
        )
        for row in rows
    ]
