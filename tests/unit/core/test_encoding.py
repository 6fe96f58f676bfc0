"""A stored body for a client that may not read its encoding."""

from __future__ import annotations

import gzip
import zlib

import pytest

from semel.core.encoding import MAX_DECODED, readable

PLAIN = b'{"id": 1}' * 10


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


GZIPPED = gzip.compress(PLAIN, mtime=0)


def read(coding: bytes, body: bytes, accept: bytes | None) -> bytes | None:
    found = readable(((b"Content-Encoding", coding),), body, accept)
    return None if found is None else found[1]


@pytest.mark.rule("R1")
@pytest.mark.parametrize(
    "accept",
    [
        *(b"gzip", b"GZIP", b"x-gzip", b"br, gzip", b"gzip;q=0.5", b"gzip; q=1.000", b"*"),
        *(b"br;q=0, *;q=0.1", b" gzip ,", b"identity, gzip;q=0.001", b"gzip, identity;q=0"),
    ],
)
def test_an_accepted_encoding_is_replayed_as_it_is(accept: bytes) -> None:
    headers = ((b"content-encoding", b"gzip"), (b"etag", b'"1"'))
    assert readable(headers, GZIPPED, accept) == (headers, GZIPPED)


@pytest.mark.rule("R1")
@pytest.mark.parametrize(
    "accept",
    [
        *(None, b"", b"identity", b"br", b"gzip;q=0", b"gzip;q=0.000"),
        *(b"gzip;q=x", b"gzip;q=2", b"gzip;level=9", b"identity;q=1, *;q=0"),
    ],
)
@pytest.mark.parametrize(
    ("coding", "body"),
    [
        (b"gzip", GZIPPED),
        (b"X-GZip", GZIPPED),
        (b"deflate", zlib.compress(PLAIN)),
        (b"deflate", raw_deflate(PLAIN)),
        (b"deflate, identity ,gzip", gzip.compress(zlib.compress(PLAIN))),
    ],
    ids=["gzip", "x-gzip", "deflate", "raw deflate", "both"],
)
def test_another_encoding_is_decoded(coding: bytes, body: bytes, accept: bytes | None) -> None:
    assert read(coding, body, accept) == PLAIN


@pytest.mark.rule("R1")
def test_a_name_weighs_more_than_the_star() -> None:
    assert read(b"gzip", GZIPPED, b"*;q=1, gzip;q=0") == PLAIN
    assert read(b"deflate", zlib.compress(PLAIN), b"*, gzip;q=0") == zlib.compress(PLAIN)


@pytest.mark.rule("R1")
def test_headers_of_the_encoded_bytes_go_with_them() -> None:
    weak = (b"ETag", b'W/"1"')
    headers = (
        (b"Content-Type", b"text/plain"),
        (b"Content-Encoding", b"deflate"),
        (b"content-encoding", b"gzip"),
        (b"etag", b'"1"'),
        (b"Content-Digest", b"sha-256=:x:"),
        (b"Content-MD5", b"x"),
        weak,
    )
    body = gzip.compress(zlib.compress(PLAIN))
    assert readable(headers, body, b"identity") == (((b"Content-Type", b"text/plain"), weak), PLAIN)


@pytest.mark.rule("R1")
@pytest.mark.parametrize("accept", [b"*;q=0", b"br, identity;q=0", b"br, *;q=0"])
def test_a_client_that_refuses_the_plain_body_gets_none(accept: bytes) -> None:
    assert read(b"gzip", GZIPPED, accept) is None


@pytest.mark.rule("R1")
@pytest.mark.parametrize(
    ("coding", "body"),
    [
        (b"br", GZIPPED),
        (b"gzip, br", GZIPPED),
        (b"br, gzip", GZIPPED),
        (b"gzip", PLAIN),
        (b"deflate", PLAIN),
        (b"gzip", GZIPPED[:-1]),
        (b"gzip", GZIPPED + b"x"),
        (b"gzip", GZIPPED[:-5] + b"\0" + GZIPPED[-4:]),
    ],
    ids=["br", "br last", "br first", "no gzip", "no zlib", "cut", "more", "damaged"],
)
def test_what_can_not_be_decoded_is_for_those_who_accept_it(coding: bytes, body: bytes) -> None:
    assert read(coding, body, b"identity") is None
    assert read(coding, body, None) == body  # without Accept-Encoding, anything goes


@pytest.mark.rule("R1")
def test_a_body_without_encoding_passes() -> None:
    headers = ((b"content-type", b"text/plain"),)
    for accept in (None, b"", b"gzip", b"*;q=0"):
        assert readable(headers, PLAIN, accept) == (headers, PLAIN)
    assert read(b"identity", PLAIN, b"br") == PLAIN
    assert read(b"gzip", b"", b"identity") == b""


@pytest.mark.rule("R1", "Q4")
def test_decoding_is_bounded() -> None:
    assert read(b"gzip", gzip.compress(bytes(MAX_DECODED)), b"br") == bytes(MAX_DECODED)
    assert read(b"gzip", gzip.compress(bytes(MAX_DECODED + 1)), b"br") is None
