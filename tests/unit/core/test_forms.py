"""Normal forms of queries, urlencoded and multipart bodies."""

from __future__ import annotations

from itertools import combinations

import pytest

from semel.core.forms import canonical_query, multipart, pairs, parts, urlencoded


@pytest.mark.rule("F3")
def test_pairs_are_bytes_and_keep_what_differs() -> None:
    assert pairs(b"a=1&b=&c&=d&&a=2") == [
        (b"a", b"1"),
        (b"b", b""),
        (b"c", None),
        (b"", b"d"),
        (b"a", b"2"),
    ]
    assert pairs(b"a+b=%2B%20&%zz=%&x=a=b") == [
        (b"a b", b"+ "),
        (b"%zz", b"%"),
        (b"x", b"a=b"),
    ]
    assert pairs(b"%ff=%fe") == [(b"\xff", b"\xfe")]
    assert pairs(b"") == []


@pytest.mark.rule("F3")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"a=%41&b=x+y", b"%61=A&b=x%20y"),
        (b"a=1&", b"a=1"),
        (b"&&a=1", b"a=1"),
        (b"a=%c3%A9", b"a=\xc3\xa9"),
    ],
)
def test_spellings_of_the_same_pairs_share_a_form(one: bytes, other: bytes) -> None:
    assert urlencoded(one) == urlencoded(other)


@pytest.mark.rule("F3")
def test_different_pairs_never_share_a_form() -> None:
    bodies = [b"", b"a", b"a=", b"=a", b"a=1&b=2", b"b=2&a=1", b"a=1%26b=2", b"a=%ff", b"a=%fe"]
    bodies += [b"a=%EF%BF%BD", b"a=1&a=1", b"a=1", b"a=%31+", b"a%3D=1", b"a==1"]
    same = [(a, b) for a, b in combinations(bodies, 2) if urlencoded(a) == urlencoded(b)]
    assert same == []


@pytest.mark.rule("F4")
def test_ignored_fields_of_a_form_make_no_difference() -> None:
    ignore = [("t",), ("é",), ("a", "b")]
    assert urlencoded(b"t=1&a=1&%C3%A9=2&t=2", ignore) == urlencoded(b"a=1")
    assert urlencoded(b"a=1", ignore) != urlencoded(b"a=2", ignore)


@pytest.mark.rule("F1")
def test_the_order_of_names_in_a_query_does_not_matter() -> None:
    assert canonical_query(b"b=2&a=1") == canonical_query(b"a=1&b=2")
    assert canonical_query(b"b=2&a=1&b=1") == canonical_query(b"b=2&b=1&a=1")
    assert canonical_query(b"b=2&a=1&b=1") != canonical_query(b"b=1&b=2&a=1")
    assert canonical_query(b"to=alice") != canonical_query(b"to=mallory")
    assert canonical_query(b"a") != canonical_query(b"a=") != canonical_query(b"")


def body(*chunks: bytes, boundary: bytes = b"B") -> bytes:
    return b"".join(b"--%b\r\n%b\r\n" % (boundary, chunk) for chunk in chunks) + b"--%b--\r\n" % (
        boundary
    )


FIELD = b'Content-Disposition: form-data; name="a"\r\n\r\n1'
FILE = (
    b'Content-Disposition: form-data; name="f"; filename="C:\\x.bin"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n\x00\r\n--\r\n\xff"
)


@pytest.mark.rule("F3")
def test_parts_keep_their_headers_and_exact_bytes() -> None:
    found = parts(body(FIELD, FILE, b"X-A:  1 \t\r\n\r\n"), b"B")
    assert found is not None
    assert [part.name for part in found] == [b"a", b"f", None]
    assert [part.content for part in found] == [b"1", b"\x00\r\n--\r\n\xff", b""]
    assert found[2].headers == ((b"x-a", b"1"),)
    assert found[1].headers[1] == (b"content-type", b"application/octet-stream")


@pytest.mark.rule("F3")
def test_the_boundary_does_not_matter() -> None:
    other = body(FIELD, FILE, boundary=b"----another")
    assert multipart(body(FIELD, FILE), b"B") == multipart(other, b"----another") is not None
    assert multipart(body(FIELD)[:-2], b"B") == multipart(body(FIELD), b"B")


@pytest.mark.rule("F3")
def test_different_parts_never_share_a_form() -> None:
    chunks = [
        (),
        (FIELD,),
        (FIELD, FIELD),
        (FILE,),
        (FIELD, FILE),
        (FILE, FIELD),
        (FIELD + b" ",),
        (FIELD.replace(b'"a"', b'"b"'),),
        (b"X: 1\r\n" + FIELD,),
    ]
    forms = [multipart(body(*each), b"B") for each in chunks]
    assert None not in forms
    assert len(set(forms)) == len(chunks)


@pytest.mark.rule("F4")
def test_ignored_parts_make_no_difference() -> None:
    other = FIELD + b"23"
    assert multipart(body(FIELD, FILE), b"B", [("a",)]) == multipart(
        body(FILE, other), b"B", [("a",)]
    )
    assert multipart(body(FIELD, FILE), b"B", [("f",)]) != multipart(
        body(other, FILE), b"B", [("f",)]
    )


@pytest.mark.rule("F3", "F7")
@pytest.mark.parametrize(
    ("malformed", "boundary"),
    [
        (b"", b"B"),
        (b"x", b"B"),
        (body(FIELD), b""),
        (body(FIELD), b"C"),
        (b"preamble\r\n" + body(FIELD), b"B"),
        (body(FIELD) + b"epilogue", b"B"),
        (body(FIELD)[:-4], b"B"),
        (body(FIELD).replace(b"--B\r\n", b"--B \r\n"), b"B"),
        (body(FIELD, FIELD).replace(b"--B\r\n", b"--B--\r\n", 1), b"B"),
        (body(b"Content-Disposition: form-data"), b"B"),
        (body(b"\r\nno headers"), b"B"),
        (body(b"no colon\r\n\r\n"), b"B"),
        (body(b"X: 1\r\n folded\r\n\r\n"), b"B"),
        (body(b"X: 1\nY: 2\r\n\r\n"), b"B"),
        (body(b"X Y: 1\r\n\r\n"), b"B"),
    ],
)
def test_a_malformed_multipart_body_has_no_form(malformed: bytes, boundary: bytes) -> None:
    assert multipart(malformed, boundary) is None


@pytest.mark.rule("F3")
def test_a_disposition_that_is_malformed_has_no_name() -> None:
    found = parts(
        body(b"Content-Disposition: ;;;\r\n\r\n", b"Content-Disposition: a\r\n\r\n"), b"B"
    )
    assert found is not None
    assert [part.name for part in found] == [None, None]


@pytest.mark.rule("F7")
def test_hostile_forms_cost_little() -> None:
    spaces = b"X: a" + b" " * 1_000_000 + b"b\r\n\r\n"
    assert multipart(body(spaces), b"B") is not None
    assert len(urlencoded(b"&" * 1_000_000 + b"%" * 1_000_000)) > 1_000_000
