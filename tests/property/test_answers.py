"""Stored headers and replays, for all inputs (rule R1)."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.core.answer import keep_headers, pack_headers, replay, unpack_headers
from semel.core.encoding import readable
from semel.core.model import Answer, HeaderPairs
from semel.errors import HeaderMalformedError

names = st.sampled_from(
    [b"Content-Type", b"link", b"LINK", b"Set-Cookie", b"Date", b"x-a", b"ETag", b"Content-Length"]
)
safe = st.binary(max_size=12).filter(lambda value: not set(value) & set(b"\r\n\0"))
header_pairs = st.lists(st.tuples(names, safe), max_size=8).map(tuple)


@pytest.mark.rule("R1", "S3")
@given(
    headers=st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=5).map(tuple)
)
def test_packed_headers_come_back_or_are_refused(headers: HeaderPairs) -> None:
    joined = b"".join(name + value for name, value in headers)
    try:
        packed = pack_headers(headers)
    except HeaderMalformedError:
        assert set(joined) & set(b"\r\n\0")
        return
    assert unpack_headers(packed) == headers
    assert not set(joined) & set(b"\r\n\0")


@pytest.mark.rule("R1")
@given(headers=header_pairs)
def test_kept_headers_are_a_subsequence_by_name(headers: HeaderPairs) -> None:
    allowed = {b"content-type", b"link", b"etag", b"content-length"}
    assert keep_headers(headers) == tuple(pair for pair in headers if pair[0].lower() in allowed)


@pytest.mark.rule("R1")
@given(
    status=st.sampled_from([200, 201, 204, 303, 404, 422]),
    headers=header_pairs,
    body=st.binary(max_size=40),
    accept=st.none() | st.text("gzip,;q=01.*identy ", max_size=20).map(str.encode),
)
def test_a_replay_keeps_status_bytes_and_other_headers(
    status: int, headers: HeaderPairs, body: bytes, accept: bytes | None
) -> None:
    replayed = replay(Answer(status, keep_headers(headers), body), accept)
    assert isinstance(replayed, Answer)
    assert replayed.status == status
    assert replayed.body == (b"" if status == 204 else body)
    lengths = [value for name, value in replayed.headers if name.lower() == b"content-length"]
    assert lengths == ([] if status == 204 else [str(len(body)).encode()])
    added = {b"content-length", b"cache-control", b"idempotent-replayed"}
    assert [pair for pair in replayed.headers if pair[0].lower() not in added] == [
        pair for pair in keep_headers(headers) if pair[0].lower() != b"content-length"
    ]


@pytest.mark.rule("R1")
@given(body=st.binary(max_size=40), accept=st.text("gzip,;q=01.*identy -x", max_size=24))
def test_a_client_gets_the_encoded_or_the_plain_body_or_none(body: bytes, accept: str) -> None:
    headers = ((b"content-encoding", b"gzip"),)
    encoded = gzip.compress(body)
    found = readable(headers, encoded, accept.encode())
    assert found in ((headers, encoded), ((), body), None)
