"""What a claim that was found means, state by state and at the exact moments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from semel.core.decide import ATOMIC_RETRY_AFTER, decide, is_absent, lease_is_over
from semel.core.model import (
    Answer,
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
from semel.errors import RecipeUnknownError

NOW = 1000.0
MINE, THEIRS = b"m" * 16, b"t" * 16


@dataclass(frozen=True)
class Request:
    """A request that is the stored one, or is not, or can not tell."""

    same: bool | None = True
    recipe: str = "1"
    digest: bytes = b"d"
    raw: bytes = b"r"

    def matches(self, recipe: str, digest: bytes, raw: bytes) -> bool:
        assert (recipe, digest, raw) == ("stored", b"D", b"R")
        if self.same is None:
            raise RecipeUnknownError
        return self.same


SAME, OTHER, UNKNOWN = Request(), Request(same=False), Request(same=None)

RUNNING = Found(
    mode=Mode.JOINED,
    status=Status.IN_PROGRESS,
    digest=b"D",
    raw=b"R",
    recipe="stored",
    owner=THEIRS,
    token=7,
    lease_expires_at=NOW + 4,
    expires_at=NOW + 100,
    answer=None,
    now=NOW,
)
OVER = replace(RUNNING, lease_expires_at=NOW)
LEASED = replace(RUNNING, mode=Mode.LEASED)
ATOMIC = replace(RUNNING, mode=Mode.ATOMIC, lease_expires_at=None, expires_at=math.inf)
DONE = replace(RUNNING, status=Status.COMPLETED, answer=Answer(201, (), b"x"), expires_at=NOW + 1)
RELEASED = replace(RUNNING, status=Status.RELEASED)
DOUBT = replace(LEASED, status=Status.IN_DOUBT, expires_at=NOW - 100, lease_expires_at=NOW - 100)


@pytest.mark.rule("A4")
def test_a_lease_is_over_at_its_exact_moment() -> None:
    assert lease_is_over(OVER)
    assert not lease_is_over(replace(RUNNING, lease_expires_at=NOW + 0.001))
    assert not lease_is_over(ATOMIC)


@pytest.mark.rule("X1", "A5")
@pytest.mark.parametrize(
    ("found", "absent"),
    [
        (RELEASED, True),
        (DONE, False),
        (replace(DONE, expires_at=NOW), True),
        (replace(DONE, expires_at=NOW + 0.001), False),
        (RUNNING, False),
        (OVER, False),
        (replace(RUNNING, expires_at=NOW - 1), False),
        (replace(OVER, expires_at=NOW), True),
        (replace(LEASED, lease_expires_at=NOW - 1, expires_at=NOW - 1), False),
        (replace(ATOMIC, expires_at=NOW - 1), False),
        (DOUBT, False),
    ],
    ids=range(11),
)
def test_when_a_row_counts_as_no_claim(found: Found, *, absent: bool) -> None:
    assert is_absent(found) is absent


@pytest.mark.rule("X1")
@pytest.mark.parametrize(
    "found", [RELEASED, replace(DONE, expires_at=NOW)], ids=["released", "old"]
)
@pytest.mark.parametrize("request_", [SAME, OTHER, UNKNOWN], ids=["same", "other", "unknown"])
def test_an_absent_claim_is_executed_whatever_it_held(found: Found, request_: Request) -> None:
    assert decide(found, request_, MINE) == Execute(8)


@pytest.mark.rule("A7")
def test_our_own_row_is_recognised() -> None:
    for found in (RUNNING, OVER, LEASED, ATOMIC):
        assert decide(replace(found, owner=MINE), UNKNOWN, MINE) == Execute(7)
    assert decide(replace(DONE, owner=MINE), SAME, MINE) == Replay(Answer(201, (), b"x"))
    assert decide(replace(DOUBT, owner=MINE), SAME, MINE) == InDoubt()


@pytest.mark.rule("F5")
@pytest.mark.parametrize("found", [RUNNING, OVER, LEASED, DONE, DOUBT, ATOMIC], ids=range(6))
def test_another_request_under_the_key_changes_nothing(found: Found) -> None:
    assert decide(found, OTHER, MINE) == Mismatch()


@pytest.mark.rule("F1")
def test_a_recipe_that_can_not_be_followed_never_executes() -> None:
    for found in (RUNNING, OVER, LEASED, DONE, DOUBT):
        with pytest.raises(RecipeUnknownError):
            decide(found, UNKNOWN, MINE)


@pytest.mark.rule("A1", "A2")
def test_a_running_claim_is_in_flight_for_the_rest_of_its_lease() -> None:
    assert decide(RUNNING, SAME, MINE) == InFlight(4.0)
    assert decide(LEASED, SAME, MINE) == InFlight(4.0)
    assert decide(ATOMIC, SAME, MINE) == InFlight(ATOMIC_RETRY_AFTER)


@pytest.mark.rule("A2", "A5")
def test_what_an_abandoned_claim_means_depends_on_its_mode() -> None:
    assert decide(OVER, SAME, MINE) == Execute(8, takeover=True)
    assert decide(replace(LEASED, lease_expires_at=NOW), SAME, MINE) == InDoubt()
    assert decide(replace(ATOMIC, unheld=True), SAME, MINE) == InDoubt()
    assert decide(DOUBT, SAME, MINE) == InDoubt()


@pytest.mark.rule("R1", "O7")
def test_a_settled_claim_is_replayed_if_its_answer_was_kept() -> None:
    assert decide(DONE, SAME, MINE) == Replay(Answer(201, (), b"x"))
    assert decide(replace(DONE, answer=Answer(200, (), b"")), SAME, MINE) == Replay(Answer(200))
    assert decide(replace(DONE, answer=Answer(206, (), None)), SAME, MINE) == NotStored(206)
    assert decide(replace(DONE, answer=None), SAME, MINE) == NotStored(0)
