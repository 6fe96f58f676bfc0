from __future__ import annotations

import logging
from hashlib import sha256

import pytest

from semel import memory
from semel.core.fingerprint import RequestImage
from semel.core.model import Answer
from semel.events import Event, emit
from semel.guard import AsyncGuard

SECRET_KEY, SECRET_SCOPE = "the-key-itself", "the-tenant-itself"


async def one_of_each(guard: AsyncGuard[memory.MemoryTx]) -> None:
    image = RequestImage("POST", "/pay", b"", (), b"500")
    request = guard.fingerprint(image)
    claim = await guard.acquire(SECRET_SCOPE, SECRET_KEY, request, route="POST /pay")
    assert not isinstance(claim, Answer)
    await guard.acquire(SECRET_SCOPE, SECRET_KEY, request, route="POST /pay")
    await guard.current().complete(Answer(201))
    await guard.acquire(SECRET_SCOPE, SECRET_KEY, request, route="POST /pay")
    other = guard.fingerprint(RequestImage("POST", "/pay", b"", (), b"501"))
    await guard.acquire(SECRET_SCOPE, SECRET_KEY, other, route="POST /pay")


@pytest.mark.rule("T4", "K6")
async def test_events_and_logs_name_digests_only(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Event] = []
    with caplog.at_level(logging.DEBUG, logger="semel"):
        async with AsyncGuard(memory.AsyncStore(), on_event=events.append) as guard:
            await one_of_each(guard)
    assert [event.name for event in events] == ["in-flight", "executed", "replayed", "mismatch"]
    assert {event.route for event in events} == {"POST /pay"}
    assert {event.key for event in events} == {sha256(SECRET_KEY.encode()).hexdigest()[:12]}
    assert len(caplog.records) == len(events)
    for text in (caplog.text, repr(events)):
        assert SECRET_KEY not in text
        assert SECRET_SCOPE not in text


@pytest.mark.rule("T4")
async def test_a_hook_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def hook(_: Event) -> None:
        raise ZeroDivisionError

    async with AsyncGuard(memory.AsyncStore(), on_event=hook) as guard:
        await one_of_each(guard)
    assert "the event hook raised" in caplog.text


def test_events_that_need_a_person_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    emit(None, Event("transaction-escaped", "POST /pay"))
    emit(None, Event("replayed", "POST /pay"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
