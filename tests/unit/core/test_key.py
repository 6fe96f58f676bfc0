"""What a key may look like, and where it comes from."""

from __future__ import annotations

import pytest

from semel.core.key import BodyField, FormField, Header, parse_header, parse_value, short
from semel.errors import KeyMalformedError, SemelError, UsageError

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"


@pytest.mark.rule("K1")
@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b"abc", "abc"),
        (b'"abc"', "abc"),
        (b' \t"abc"\t ', "abc"),
        (b"  abc  ", "abc"),
        (UUID.encode(), UUID),
        (f'"{UUID}"'.encode(), UUID),
        (rb'"a\"b"', 'a"b'),
        (rb'"a\\b"', r"a\b"),
        (rb'"\\\""', r"\""),
        (b'"a,b;c=d"', "a,b;c=d"),
        (rb"a\b", r"a\b"),
        (b"!~", "!~"),
    ],
)
def test_quoted_and_bare_keys_are_the_same(value: bytes, key: str) -> None:
    assert parse_header([value]) == key


@pytest.mark.rule("K1")
@pytest.mark.parametrize(
    "value",
    [
        b'"',
        b'"abc',
        b'"abc"x',
        b'"abc" x',
        b'"abc";p=1',
        b'"a", "b"',
        b'"a"b"',
        rb'"a\nb"',
        rb'"abc\"',
        b'""abc""',
    ],
)
def test_a_key_that_starts_with_a_quote_must_parse_exactly(value: bytes) -> None:
    with pytest.raises(KeyMalformedError, match="RFC 9651"):
        parse_header([value])


@pytest.mark.rule("K1")
def test_strict_accepts_only_the_quoted_form() -> None:
    assert parse_header([b'"abc"'], strict=True) == "abc"
    with pytest.raises(KeyMalformedError, match="double quotes"):
        parse_header([b"abc"], strict=True)


@pytest.mark.rule("K2")
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([b"a", b"b"], "exactly once"),
        ([b"a", b"a"], "exactly once"),
        ([b"a,b"], "comma"),
        ([b"a, b"], "comma"),
        ([b""], "blank"),
        ([b" \t "], "blank"),
        ([b'""'], "empty"),
        ([b"a b"], "space"),
        ([b'"a b"'], "space"),
        ([b"a\x00b"], "control"),
        ([b'"a\x7fb"'], "control"),
        ([b"a\nb"], "control"),
        ([b"a\r"], "control"),
        ([b"\x0ba"], "control"),
        ([b"\x0c"], "control"),
        ([b'"abc\n"'], "control"),
        (["ключ".encode()], "non-ASCII"),
        ([b'"\xe9"'], "non-ASCII"),
        ([b'ab"c'], "double quote"),
        ([b"x" * 256], "255"),
        ([b'"' + b"x" * 256 + b'"'], "255"),
    ],
)
def test_a_malformed_header_is_refused_with_the_rule(values: list[bytes], reason: str) -> None:
    with pytest.raises(KeyMalformedError, match=reason):
        parse_header(values)


@pytest.mark.rule("K2")
def test_length_is_counted_after_unquoting() -> None:
    assert parse_header([b"x" * 255]) == "x" * 255
    assert parse_header([b'"' + b"x" * 255 + b'"']) == "x" * 255
    assert parse_header([b'"' + rb"\"" * 255 + b'"']) == '"' * 255


@pytest.mark.rule("K2", "K6")
@pytest.mark.parametrize(
    "value",
    [b"s3cret,key", b's3cret"key', b'"s3cret', b"s3cret key", b"s3cret" * 60, b"s3cret\xff"],
)
def test_a_refusal_never_repeats_the_key(value: bytes) -> None:
    with pytest.raises(KeyMalformedError) as caught:
        parse_header([value])
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert isinstance(caught.value, SemelError)


@pytest.mark.rule("K3")
def test_no_header_is_no_key() -> None:
    assert parse_header([]) is None


@pytest.mark.rule("K2", "K6")
def test_a_value_from_elsewhere_is_not_unquoted() -> None:
    assert parse_value('"a,b"') == '"a,b"'
    for bad in ("", "x" * 256, "a b", "é", "a\x00", "a\n"):
        with pytest.raises(KeyMalformedError):
            parse_value(bad)


@pytest.mark.rule("K6")
def test_keys_are_shown_as_twelve_digits_of_their_digest() -> None:
    assert short(bytes(range(32))) == "000102030405"


@pytest.mark.rule("K6")
def test_another_header_can_carry_the_key() -> None:
    headers = ((b"x-request-id", b"abc"), (b"Webhook-Id", b"msg_1"), (b"webhook-id2", b"no"))
    assert Header("webhook-ID").read(headers) == "msg_1"
    assert Header().read(headers) is None
    assert Header().read(((b"idempotency-key", b'"abc"'),), strict=True) == "abc"
    with pytest.raises(KeyMalformedError, match="exactly once"):
        Header().read(((b"idempotency-key", b"a"), (b"Idempotency-Key", b"a")))
    with pytest.raises(UsageError, match="header name"):
        Header("no spaces")


@pytest.mark.rule("K6")
@pytest.mark.parametrize(
    "content_type", [b"application/json", b"application/cloudevents+json", None]
)
def test_a_field_of_a_json_body_can_carry_the_key(content_type: bytes | None) -> None:
    source = BodyField("/events/0/id")
    assert source.read(content_type, b'{"events": [{"id": "evt_1"}]}') == "evt_1"
    assert source.read(content_type, b'{"events": []}') is None
    assert source.read(content_type, b'{"events": [1.5]}') is None
    assert source.read(content_type, b"") is None


@pytest.mark.rule("K6")
@pytest.mark.parametrize("content_type", [b"text/plain", b"/;", b"application/xml"])
def test_a_body_of_another_type_has_no_field(content_type: bytes) -> None:
    assert BodyField("/id").read(content_type, b'{"id": "a"}') is None


@pytest.mark.rule("K2", "K6")
@pytest.mark.parametrize(
    "body",
    [
        b'{"id": 1}',
        b'{"id": 1.5}',
        b'{"id": null}',
        b'{"id": ["a"]}',
        b'{"id": ""}',
        b'{"id": "a b"}',
        rb'{"id": "\ud800"}',
        b'{"id": "a", "id": "b"}',
        b'{"id": "a"',
        b'{"id": "a", "x": NaN}',
        b'{"id": "\xff"}',
        b"[" * 100_000,
    ],
)
def test_a_field_that_is_no_key_for_sure_is_refused(body: bytes) -> None:
    with pytest.raises(KeyMalformedError):
        BodyField("/id").read(b"application/json", body)


@pytest.mark.rule("K6")
def test_a_body_field_needs_a_json_pointer() -> None:
    with pytest.raises(UsageError, match="slash"):
        BodyField("id")


URLENCODED = b"application/x-www-form-urlencoded"
MULTIPART = b"multipart/form-data; boundary=B"


def multipart(*values: str) -> bytes:
    part = '--B\r\nContent-Disposition: form-data; name="key"\r\n\r\n{}\r\n'
    return ("".join(map(part.format, values)) + "--B--\r\n").encode()


@pytest.mark.rule("K6")
def test_a_field_of_a_form_can_carry_the_key() -> None:
    source = FormField("key")
    assert source.read(URLENCODED, b"a=1&key=abc%2D1&b=2") == "abc-1"
    assert source.read(URLENCODED, b"a=1") is None
    assert source.read(MULTIPART, multipart("abc")) == "abc"
    assert source.read(MULTIPART, multipart()) is None
    assert source.read(b"application/json", b"{}") is None
    assert source.read(None, b"key=abc") is None


@pytest.mark.rule("K2", "K6")
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (URLENCODED, b"key=a&key=a"),
        (URLENCODED, b"key"),
        (URLENCODED, b"key=a+b"),
        (URLENCODED, "key=ключ".encode()),
        (MULTIPART, multipart("a", "b")),
        (MULTIPART, b"--B\r\n"),
        (b"multipart/form-data", multipart("a")),
    ],
)
def test_a_form_without_one_key_for_sure_is_refused(content_type: bytes, body: bytes) -> None:
    with pytest.raises(KeyMalformedError):
        FormField("key").read(content_type, body)
