"""`decide` against a brute-force model: every state, mode and order of times.

The model is the table of the README, written down once more: it asks what a
client must be told, not how the code gets there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.core.decide import decide
from semel.core.model import (
    Answer,
    Decision,
    Execute,
    Found,
    InDoubt,
    InFlight,
    Mismatch,
    Mode,
    NotStored,
    Replay,
    Status,
)

OURS, THEIRS = b"o" * 16, b"t" * 16


@dataclass(frozen=True)
class Request:
    same: bool
    recipe: str = "1"
    digest: bytes = b"d"
    raw: bytes = b"r"

    def matches(self, recipe: str, digest: bytes, raw: bytes) -> bool:
        return self.same and (recipe, digest, raw) == ("1", b"d", b"r")


def told(found: Found, *, same: bool, ours: bool) -> Decision:
    """What the client of a request must be told, as a table of conditions."""
    running = found.status is Status.IN_PROGRESS
    lease = found.lease_expires_at
    abandoned = lease is not None and found.now >= lease
    forgotten = found.now >= found.expires_at
    kept = found.answer is not None and found.answer.body is not None
    in_flight = InFlight(1.0 if lease is None else lease - found.now)
    held = found.mode is Mode.ATOMIC and not found.unheld
    table: list[tuple[bool, Decision]] = [
        (running and ours, Execute(found.token)),
        (found.status is Status.RELEASED, Execute(found.token + 1)),
        (found.status is Status.COMPLETED and forgotten, Execute(found.token + 1)),
        (
            running and found.mode is Mode.JOINED and abandoned and forgotten,
            Execute(found.token + 1),
        ),
        (not same, Mismatch()),
        (found.status is Status.IN_DOUBT, InDoubt()),
        (
            found.status is Status.COMPLETED and kept,
            Replay(found.answer or Answer(0)),
        ),
        (found.status is Status.COMPLETED, NotStored(found.answer.status if found.answer else 0)),
        (running and held, in_flight),
        (running and found.mode is not Mode.ATOMIC and not abandoned, in_flight),
        (running and found.mode is Mode.JOINED, Execute(found.token + 1, takeover=True)),
        (True, InDoubt()),
    ]
    return next(decision for holds, decision in table if holds)


@st.composite
def claims(draw: st.DrawFn) -> Found:
    mode, status = draw(st.sampled_from(list(product(Mode, Status))))
    moments = st.integers(-3, 3)
    body = draw(st.sampled_from([None, b"", b"x"]))
    return Found(
        mode=mode,
        status=status,
        digest=b"d",
        raw=b"r",
        recipe="1",
        owner=draw(st.sampled_from([OURS, THEIRS])),
        token=draw(st.integers(1, 9)),
        lease_expires_at=None if mode is Mode.ATOMIC else float(draw(moments)),
        expires_at=float(draw(moments)),
        answer=draw(st.sampled_from([None, Answer(201, (), body)])),
        now=0.0,
        unheld=mode is Mode.ATOMIC and draw(st.booleans()),
    )


@pytest.mark.rule("A1", "A5", "F5")
@given(found=claims(), same=st.booleans())
def test_every_claim_is_interpreted_as_the_table_says(found: Found, *, same: bool) -> None:
    expected = told(found, same=same, ours=found.owner == OURS)
    assert decide(found, Request(same), OURS) == expected


@pytest.mark.rule("F5", "F6")
@given(found=claims())
def test_a_different_request_never_gets_the_answer(found: Found) -> None:
    assert not isinstance(decide(found, Request(same=False), OURS), Replay | NotStored)


@pytest.mark.rule("A4")
@given(found=claims(), same=st.booleans())
def test_only_the_owner_keeps_its_token(found: Found, *, same: bool) -> None:
    decision = decide(found, Request(same), OURS)
    if isinstance(decision, Execute):
        kept = found.owner == OURS and found.status is Status.IN_PROGRESS
        assert decision.token == found.token + (not kept)
