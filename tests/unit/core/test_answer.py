"""Which answers are kept, which headers, and how an answer is replayed."""

from __future__ import annotations

import pytest

from semel.core.answer import (
    Storable,
    extra_headers,
    keep_headers,
    pack_headers,
    replay,
    unpack_headers,
)
from semel.core.model import Answer, NotStored
from semel.errors import HeaderMalformedError, UsageError

STORED = {*range(200, 300), 303, *range(400, 500)} - {
    *(401, 403, 408, 409, 412, 421, 423, 425, 428, 429),
}


@pytest.mark.rule("O1")
def test_the_default_table() -> None:
    assert {status for status in range(100, 600) if Storable().is_storable(status)} == STORED


@pytest.mark.rule("O1")
def test_the_table_can_be_changed() -> None:
    policy = Storable(also=frozenset({409, 503, 302}), never=frozenset({202, 404}))
    changed = {status for status in range(100, 600) if policy.is_storable(status)}
    assert changed == (STORED | {409, 503, 302}) - {202, 404}


@pytest.mark.rule("O1")
def test_a_table_that_can_not_be_meant_is_refused() -> None:
    with pytest.raises(UsageError, match="404 can not be stored and not stored"):
        Storable(also=frozenset({404}), never=frozenset({404, 405}))
    for status in (199, 100, 600, 0):
        with pytest.raises(UsageError, match="200 to 599"):
            Storable(also=frozenset({status}))
        with pytest.raises(UsageError, match="200 to 599"):
            Storable(never=frozenset({status}))


SENT = (
    (b"Content-Type", b"application/json"),
    (b"Set-Cookie", b"session=1"),
    (b"link", b"</1>"),
    (b"Date", b"now"),
    (b"Location", b"/payments/1"),
    (b"Transfer-Encoding", b"chunked"),
    (b"Link", b"</2>"),
    (b"ETag", b'"1"'),
    (b"Last-Modified", b"then"),
    (b"X-Payment", b"1"),
    (b"WWW-Authenticate", b"Basic"),
    (b"RateLimit-Policy", b"q"),
    (b"Set-Cookie", b"theme=2"),
    (b"content-language", b"ru"),
)


@pytest.mark.rule("R1")
def test_headers_are_kept_by_an_allow_list_in_their_order() -> None:
    kept = keep_headers(SENT)
    assert [name for name, _ in kept] == [
        *(b"Content-Type", b"link", b"Location", b"Link"),
        *(b"ETag", b"Last-Modified", b"content-language"),
    ]
    assert kept[1] == (b"link", b"</1>")
    assert (b"X-Payment", b"1") in keep_headers(SENT, frozenset({b"x-PAYMENT"}))
    assert len(keep_headers(SENT, frozenset({b"x-payment"}))) == len(kept) + 1


NEVER = [
    *("Set-Cookie", "WWW-Authenticate", "Authorization", "Date", "Connection", "Keep-Alive"),
    *("Proxy-Authenticate", "Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding", "Upgrade"),
    *("RateLimit", "RateLimit-Policy", "RateLimit-Reset", "X-RateLimit-Remaining"),
]


@pytest.mark.rule("R1", "Q4")
@pytest.mark.parametrize("name", NEVER)
def test_what_is_never_replayed_can_not_be_configured(name: str) -> None:
    assert keep_headers(((name.encode(), b"1"),)) == ()
    with pytest.raises(UsageError, match="never replayed"):
        extra_headers([name.encode()])
    with pytest.raises(UsageError, match="never replayed"):
        keep_headers((), frozenset({name.encode()}))


@pytest.mark.rule("R1")
def test_extra_names_must_be_names() -> None:
    assert extra_headers([b"X-Payment", b"x-payment"]) == {b"x-payment"}
    with pytest.raises(UsageError, match="header name"):
        extra_headers([b"no spaces"])


@pytest.mark.rule("R1", "Q4")
@pytest.mark.parametrize("bad", [b"a\rSet-Cookie: x=1", b"a\nb", b"a\0"])
def test_injected_lines_are_neither_kept_nor_packed(bad: bytes) -> None:
    with pytest.raises(HeaderMalformedError):
        keep_headers(((b"Location", bad),))
    with pytest.raises(HeaderMalformedError):
        pack_headers(((b"Location", bad),))
    assert keep_headers(((b"X-Other", bad),)) == ()


@pytest.mark.rule("R1", "S3")
def test_packed_headers_come_back_byte_for_byte() -> None:
    headers = ((b"Link", b"a"), (b"link", b"\xff\x80\xc3\xa9"), (b"x", b""), (b"Link", b'"\\'))
    assert unpack_headers(pack_headers(headers)) == headers
    assert pack_headers(()) == b"[]"
    assert pack_headers(((b"a", b"b"),)) == b'[["a","b"]]'


STORED_ANSWER = Answer(
    201,
    (
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"999"),
        (b"Link", b"</1>"),
        (b"Link", b"</2>"),
        (b"Cache-Control", b"max-age=60"),
    ),
    b'{"id": 1}',
)


@pytest.mark.rule("R1")
def test_a_replay_is_the_stored_answer_marked_and_uncacheable() -> None:
    replayed = replay(STORED_ANSWER, b"gzip")
    assert replayed == Answer(
        201,
        (
            (b"Content-Type", b"application/json"),
            (b"Link", b"</1>"),
            (b"Link", b"</2>"),
            (b"content-length", b"9"),
            (b"cache-control", b"no-store"),
            (b"idempotent-replayed", b"true"),
        ),
        b'{"id": 1}',
    )


@pytest.mark.rule("R1")
def test_the_marker_has_a_configurable_name_and_is_sent_once() -> None:
    stored = Answer(200, ((b"X-Again", b"false"),), b"")
    replayed = replay(stored, None, marker=b"x-again")
    assert isinstance(replayed, Answer)
    assert [value for name, value in replayed.headers if name == b"x-again"] == [b"true"]
    assert (b"X-Again", b"false") not in replayed.headers


@pytest.mark.rule("R1")
@pytest.mark.parametrize(
    ("status", "replay_status", "sent"),
    [(201, 200, 200), (201, None, 201), (202, 200, 202), (404, 200, 404)],
)
def test_replay_status_replaces_201_only(status: int, replay_status: int | None, sent: int) -> None:
    replayed = replay(Answer(status), None, replay_status=replay_status)
    assert isinstance(replayed, Answer)
    assert replayed.status == sent


@pytest.mark.rule("R1", "O6")
@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_content_has_no_length(status: int) -> None:
    stored = Answer(status, ((b"content-length", b"0"), (b"etag", b'"1"')), b"")
    replayed = replay(stored, None)
    assert isinstance(replayed, Answer)
    assert [name for name, _ in replayed.headers] == [
        *(b"etag", b"cache-control", b"idempotent-replayed"),
    ]
    assert replayed.body == b""


@pytest.mark.rule("O7")
def test_an_answer_without_a_body_is_not_stored() -> None:
    assert replay(Answer(200, (), None), b"gzip") == NotStored(200)


@pytest.mark.rule("R1")
def test_an_answer_that_this_client_can_not_read_is_not_stored() -> None:
    stored = Answer(201, ((b"content-encoding", b"br"),), b"\x01\x02")
    assert replay(stored, b"gzip") == NotStored(201)
    assert isinstance(replay(stored, b"br"), Answer)
