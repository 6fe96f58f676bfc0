"""A retry gets the first answer, and nothing happens twice."""

from __future__ import annotations

from semel.check.desk import Desk, settle_cost
from semel.check.model import ALWAYS, Outcome, Probe, broken, held, unobserved

UNCOUNTED = "whether the effect happened once; give --count to see it"


async def run(desk: Desk) -> Outcome:
    """Ask for one operation twice and compare."""
    before = await desk.effects()
    request = desk.operation().request()
    first = await desk.send(request, "first")
    if not first.succeeded:
        return unobserved(f"the first request was answered {first.status}")
    retry = await desk.settle(request, "retry")
    after = await desk.effects()
    if before is not None and after is not None and after - before > 1:
        return broken(f"asked once and retried once: {after - before} effects")
    if retry is None:
        return broken("the retry was never answered")
    if (retry.status, retry.body) != (first.status, first.body):
        return broken(f"first {first.status}, retry {retry.status}: not the same answer")
    return held(
        "the retry got the first status and body",
        unseen=UNCOUNTED if before is None else None,
    )


PROBE = Probe(
    name="replay",
    title="A retry gets the first answer",
    stands_on=("draft-ietf-httpapi-idempotency-key-header-07 section 2.6",),
    sends="one operation, and the same request again once it is answered",
    concludes="fails where status or body differ, or where --count counts two effects",
    fix="store the answer with the effect, and give it to every later request with the key",
    severities=ALWAYS,
    requests=lambda settings: 3 + settle_cost(settings),
    run=run,
)
