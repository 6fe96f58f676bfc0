"""Header values with parameters, names, and the refusal of injected lines."""

from __future__ import annotations

import pytest

from semel.core.headers import (
    Parameterised,
    header_name,
    parse_parameterised,
    refuse_injection,
    values_of,
)
from semel.errors import HeaderMalformedError, SemelError, UsageError


@pytest.mark.rule("F1")
@pytest.mark.parametrize(
    ("text", "value", "parameters"),
    [
        (b"application/json", b"application/json", {}),
        (b" Text/Plain ; Charset=UTF-8", b"text/plain", {b"charset": b"UTF-8"}),
        (b"text/plain;", b"text/plain", {}),
        (b"text/plain;; a=1 ;", b"text/plain", {b"a": b"1"}),
        (
            b'multipart/form-data; boundary="a;b\\"c"',
            b"multipart/form-data",
            {b"boundary": b'a;b"c'},
        ),
        (b'form-data; name="a"; filename=""', b"form-data", {b"name": b"a", b"filename": b""}),
    ],
)
def test_a_value_is_split_from_its_parameters(
    text: bytes, value: bytes, parameters: dict[bytes, bytes]
) -> None:
    parsed = parse_parameterised(text)
    assert parsed == Parameterised(value, tuple(parameters.items()))
    for name, expected in parameters.items():
        assert parsed.get(name) == expected
    assert parsed.get(b"absent") is None


@pytest.mark.rule("F1")
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"/",
        b"a b",
        b"a/b c",
        b"a/b; c d",
        b'a/b; c="d',
        b"a/b; c=",
        b"a/b; c=1; C=2",
        b"a/b, a/b",
    ],
)
def test_a_malformed_value_is_not_guessed_at(text: bytes) -> None:
    assert parse_parameterised(text) is None


@pytest.mark.rule("F2")
def test_which_media_types_are_json() -> None:
    assert Parameterised(b"application/json").is_json
    assert Parameterised(b"application/merge-patch+json").is_json
    assert not Parameterised(b"text/json-ish").is_json


@pytest.mark.rule("R1")
def test_names_are_compared_without_case_and_values_keep_their_order() -> None:
    headers = ((b"Link", b"1"), (b"x", b"2"), (b"link", b"3"))
    assert values_of(headers, b"link") == [b"1", b"3"]
    assert header_name("X-Version") == b"x-version"


@pytest.mark.rule("R1")
@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "é"])
def test_a_configured_name_must_be_one(name: str) -> None:
    with pytest.raises(UsageError, match="not a header name"):
        header_name(name)


@pytest.mark.rule("R1", "Q4")
@pytest.mark.parametrize("bad", [b"a\rb", b"a\nb", b"a\0b", b"\r\n"])
def test_injected_lines_are_refused(bad: bytes) -> None:
    for headers in (((b"ok", b"ok"), (b"link", bad)), ((bad, b"ok"),)):
        with pytest.raises(HeaderMalformedError) as caught:
            refuse_injection(headers)
        assert isinstance(caught.value, SemelError)
        assert isinstance(caught.value, ValueError)
    refuse_injection(((b"ok", b"a\tb \xff"),))
