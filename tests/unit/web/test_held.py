"""An answer while it is held back."""

from __future__ import annotations

import pytest

from semel.core.model import Answer
from semel.web.held import HeldAnswer


def held(*pairs: tuple[bytes, bytes], status: int = 200) -> HeldAnswer:
    answer = HeldAnswer()
    answer.begin({"type": "http.response.start", "status": status, "headers": pairs})
    return answer


@pytest.mark.rule("R1", "O4")
def test_it_is_stored_by_its_allow_list_and_sent_whole() -> None:
    answer = held((b"etag", b"1"), (b"set-cookie", b"a=b"))
    chunk = bytearray(b"12")
    answer.add(chunk)
    chunk[:] = b"xx"
    answer.add(b"")
    answer.add(b"3")
    assert answer.to_answer(frozenset(), with_body=True) == Answer(200, ((b"etag", b"1"),), b"123")
    assert answer.to_answer(frozenset(), with_body=False).body is None
    start, body = answer.messages(last=True)
    assert start["headers"] == [(b"etag", b"1"), (b"set-cookie", b"a=b")]
    assert body == {"type": "http.response.body", "body": b"123", "more_body": False}


@pytest.mark.rule("O7")
def test_a_beginning_is_sent_without_an_empty_body() -> None:
    assert [message["type"] for message in held().messages(last=False)] == ["http.response.start"]
    assert not list(HeldAnswer().messages(last=True))


@pytest.mark.rule("O7")
@pytest.mark.parametrize(
    ("values", "is_one"),
    [
        ([b"text/event-stream"], True),
        ([b"Text/Event-Stream; charset=utf-8"], True),
        ([b"text/event-streams"], False),
        ([b"text/plain; a=text/event-stream"], False),
        ([b"text/event-stream", b"text/plain"], False),
        ([b";;;"], False),
        ([], False),
    ],
)
def test_what_an_event_stream_is(values: list[bytes], is_one: bool) -> None:
    assert held(*((b"Content-Type", value) for value in values)).is_event_stream is is_one


@pytest.mark.rule("O5", "O7")
@pytest.mark.parametrize(
    ("status", "declared", "whole", "may_be_cut", "exceeds"),
    [
        (200, b"4", True, False, False),
        (200, b"5", False, False, True),
        (200, b"3", False, False, False),
        (200, b"many", True, True, False),
        (304, b"5", True, False, False),
        (204, b"5", True, False, False),
    ],
)
def test_what_a_declared_length_means(
    status: int,
    declared: bytes,
    whole: bool,
    may_be_cut: bool,
    exceeds: bool,
) -> None:
    answer = held((b"Content-Length", declared), status=status)
    answer.add(b"four")
    assert answer.is_as_declared is whole
    assert answer.may_be_cut is may_be_cut
    assert answer.exceeds(4) is exceeds


@pytest.mark.rule("O6")
def test_the_protocol_is_kept() -> None:
    with pytest.raises(RuntimeError, match="before it started"):
        HeldAnswer().add(b"1")
    with pytest.raises(RuntimeError, match="twice"):
        held().begin({"type": "http.response.start", "status": 200})
