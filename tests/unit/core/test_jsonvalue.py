"""The lossless normal form of JSON: the hard cases one by one."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from semel.core.jsonvalue import MAX_DEPTH, normal_form, parse, parse_pointer, resolve
from semel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def form(body: str, ignore: Sequence[str] = ()) -> bytes | None:
    return normal_form(body.encode(), [parse_pointer(pointer) for pointer in ignore])


SAME = [
    ['{"a": 1, "b": [2]}', ' {\n"b":[ 2 ],\t"a" :1}\r\n'],
    ["1", "1.0", "10e-1", "1e0", "1E+0", "0.1e1", "100.00e-2", "1e-0", "1e00000000000000000000"],
    ["0", "-0", "0.0", "-0.0", "0e5", "-0e-5", "0e99999999999999999999999999"],
    ["-1.50", "-1.5", "-15e-1", "-0.15e1"],
    ["0.1", "1e-1", "0.10", "0.01e1"],
    ["1e39", "1" + "0" * 39, "10e38", "1" + "0" * 39 + ".0"],
    ["1e40", "1" + "0" * 40, "10E39", "0.1e41"],
    ["1e999999999", "10e999999998", "0.1e1000000000"],
    ["7" * 5000, "7" * 5000 + ".0", "7." + "7" * 4999 + "e4999"],
    ["0." + "0" * 38 + "1", "1e-39", "0." + "0" * 38 + "10"],
    ["0." + "0" * 60 + "1", "1e-61", "10e-62"],
    ["1." + "3" * 50, "1" + "3" * 50 + "e-50"],
    ["123456789.5e-5", "1234.567895", "1234.5678950"],
    [r'"A\/\u00e9"', '"A/é"', r'"\u0041/é"'],
    [r'"\ud83d\ude00"', '"😀"'],
    [r'{"\u0061": 1}', '{"a": 1}'],
    [r'"\t\n\"\\"', r'"\u0009\u000a\u0022\u005c"'],
]

# No two of these are the same value.
DIFFERENT = [
    *("9007199254740993", "9007199254740994", "9007199254740992"),  # around 2**53
    *("18446744073709551616", "18446744073709551617"),  # beyond 64 bits
    *("1" * 41, "1" * 40 + "2", "1" * 5000, "1" * 4999 + "2"),
    *("0.1", "0.10000000000000001", "1e-400", "1e-401", "0.1" + "0" * 50 + "1"),
    *("1e400", "1e401", "-1e400", "1e40", "1e41", "1e999999999", "1e999999998"),
    *("1e999999999999999999", "1e-999999999999999999"),
    *("true", "1", '"1"', "[1]", "-1", "0", "false", "null", '""', "[]", "{}", "[null]"),
    *('{"a": null}', '{"a": 1}', '{"A": 1}', '{"a": "1"}', '{"a": true}', '{"a": []}'),
    *("[1, 2]", "[2, 1]", "[[1], 2]", "[1, [2]]", '["1,2"]'),
    *("1.5", '"1.5"', '["NaN", "1.5"]', '[null, "1.5"]', '[NaN, "1.5"]', "[1.5]"),
    *('"é"', '"e\u0301"', '"\\u0000"', r'"\\u0000"'),
]


@pytest.mark.rule("F2")
@pytest.mark.parametrize("spellings", SAME, ids=range(len(SAME)))
def test_spellings_of_one_value_share_a_form(spellings: list[str]) -> None:
    forms = {form(spelling) for spelling in spellings}
    assert len(forms) == 1
    assert None not in forms


@pytest.mark.rule("F2")
@pytest.mark.parametrize("length", range(30, 50))
def test_spellings_meet_at_every_length(length: int) -> None:
    tiny = {"0." + "0" * length + "1", f"1e-{length + 1}", "0." + "0" * length + "1000"}
    long = {"7." + "3" * length, "7" + "3" * length + f"e-{length}", "7." + "3" * length + "00"}
    large = {"7" * length, "7" * length + ".0", "7." + "7" * (length - 1) + f"0e{length - 1}"}
    round_ = {"7" + "0" * length, f"7e{length}", f"0.07E+{length + 2}"}
    for spellings in (tiny, long, large, round_):
        assert len({form(text) for text in spellings}) == 1
        assert len({form("-" + text) for text in spellings}) == 1
        assert form("-" + min(spellings)) != form(min(spellings))


@pytest.mark.rule("F2")
def test_different_values_never_share_a_form() -> None:
    seen = {body: form(body) or b"raw:" + body.encode() for body in DIFFERENT}
    assert len(seen) == len(DIFFERENT)
    same = [(a[:50], b[:50]) for a, b in combinations(seen, 2) if seen[a] == seen[b]]
    assert same == []


@pytest.mark.rule("F2")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"[1,]",
        b"{'a': 1}",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"1e",
        b"- 1",
        b"1 2",
        b"\xef\xbb\xbf1",
        b'"\xff"',
        b'"\xed\xa0\x80"',  # a surrogate in UTF-8
        b'"\x01"',
        "\uff11".encode(),  # a digit, but not of JSON
        "1".encode("utf-16"),
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"[1, NaN]",
        b'{"a": 1, "a": 1}',
        rb'{"a": 1, "\u0061": 1}',
        b'[{"b": {"a": 1, "a": 2}}]',
        rb'"\ud800"',
        rb'{"\udfff": 1}',
        b"1e9999999999999999999",
        b"1e-9999999999999999999",
    ],
)
def test_what_readers_do_not_agree_on_has_no_form(body: bytes) -> None:
    assert normal_form(body) is None


def nested(depth: int, inner: str = "") -> bytes:
    return ("[" * depth + inner + "]" * depth).encode()


@pytest.mark.rule("F2", "F7")
def test_the_limit_of_nesting_is_exact() -> None:
    assert normal_form(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    assert normal_form(nested(MAX_DEPTH + 1)) is None
    assert normal_form(nested(MAX_DEPTH, "{}")) is None
    assert normal_form(nested(MAX_DEPTH - 1, '{"a":[]}')) is None
    assert normal_form(nested(MAX_DEPTH - 1, "[],[]")) is not None


@pytest.mark.rule("F2", "F7")
@pytest.mark.parametrize(
    "content",
    [
        "[" * 200,
        "{" * 200,
        r"\\",
        r"\"" + "[" * 200,
        r"\\\"" + "[" * 200,
        r"\\\\",
        r"\"\\\"",
    ],
    ids=range(7),
)
def test_brackets_inside_a_text_are_not_nesting(content: str) -> None:
    # Two levels deep, with brackets enough to be looked at closely.
    body = f'["{content}", {"[]," * 200}0]'
    assert normal_form(nested(MAX_DEPTH - 2, body)) is not None
    assert normal_form(nested(MAX_DEPTH - 1, body)) is None


HOSTILE = {
    "open brackets": b"[" * 100_000,
    "nested arrays": nested(100_000),
    "nested objects": b'{"a":' * 100_000,
    "a text without end": b'["' + rb"\"" * 1_000_000,
    "quotes": b'"' * 2_000_001,
    "backslashes": b"[" * 200 + b"\\" * 2_000_000,
}


@pytest.mark.rule("F2", "F7")
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_nesting_and_quoting_cost_little_and_have_no_form(body: bytes) -> None:
    assert normal_form(body) is None


@pytest.mark.rule("F2", "F7")
def test_two_mebibytes_are_fine() -> None:
    digits = "7" * (2 * 1024 * 1024)
    assert form(digits) == form(digits + ".00")
    assert form("[" + "1," * 1_000_000 + "1]") == ("[" + "1," * 1_000_000 + "1]").encode()
    assert form("1e-" + "0" * 2_000_000 + "1") == form("0.1")


@pytest.mark.rule("F2")
def test_a_form_never_expands() -> None:
    for number in ("1e999999999", "-1e-999999999", "1e41", "123e-45"):
        expanded = form(number)
        assert expanded is not None
        assert len(expanded) < 60


@pytest.mark.rule("F4")
@pytest.mark.parametrize(
    ("ignore", "one", "other"),
    [
        (["/t"], '{"a": 1, "t": 1}', '{"a": 1, "t": 2}'),
        (["/t"], '{"a": 1, "t": 1}', '{"a": 1}'),
        (["/a/t", "/a/u"], '{"a": {"t": 1, "b": 2}}', '{"a": {"b": 2, "u": 5}}'),
        (["/x/0/t"], '{"x": [{"t": 1}, 5]}', '{"x": [{"t": 2}, 5]}'),
        (["/0"], "[1, 2]", "[9, 2]"),
        (["/0", "/1"], "[1, 2, 3]", "[8, 9, 3]"),
        (["/1", "/0"], "[1, 2, 3]", "[8, 9, 3]"),
        (["/9", "/10"], str([*range(12)]), str([*range(9), 0, 0, 11])),
        (["/0", "/1/t"], '[1, {"t": 1}]', '[2, {"t": 2}]'),
        (["/0", "/0/t"], '[{"t": 1}, 5]', "[7, 5]"),
        (["/a~1b", "/c~0d"], '{"a/b": 1, "c~d": 2}', "{}"),
        (["/"], '{"": 1}', "{}"),
        (["/é"], '{"é": 1}', "{}"),
        (["/t"], rb'{"t": "\ud800"}'.decode(), "{}"),
    ],
)
def test_what_is_ignored_makes_no_difference(ignore: list[str], one: str, other: str) -> None:
    assert form(one, ignore) is not None
    assert form(one, ignore) == form(other, ignore)
    assert form(one) != form(other)


@pytest.mark.rule("F4")
@pytest.mark.parametrize(
    "pointer",
    ["/b", "/a/b", "/a/7", "/a/01", "/a/+1", "/n/0", "/n/0/1", "/s/0", "/a/" + "1" * 99],
)
def test_a_pointer_to_nothing_changes_nothing(pointer: str) -> None:
    body = '{"a": [1, 2], "n": 1.5, "s": "text"}'
    assert form(body, [pointer]) == form(body)
    with pytest.raises(LookupError):
        resolve(parse(body.encode()), parse_pointer(pointer))


@pytest.mark.rule("F4")
def test_the_rest_is_still_compared() -> None:
    assert form('{"a": 1, "t": 1}', ["/t"]) != form('{"a": 2, "t": 1}', ["/t"])
    assert form('{"a": {"t": 1}}', ["/t"]) != form('{"a": {"t": 2}}', ["/t"])


@pytest.mark.rule("F4", "K6")
def test_pointers_are_parsed_as_the_rfc_says() -> None:
    assert parse_pointer("") == ()
    assert parse_pointer("/") == ("",)
    assert parse_pointer("/a~1b/m~0n/~01/0") == ("a/b", "m~n", "~1", "0")
    assert resolve(parse(b'{"a/b": [{"~1": 5}]}'), parse_pointer("/a~1b/0/~01")) == 5
    assert resolve(parse(b"7"), ()) == 7


@pytest.mark.rule("F4", "K6")
@pytest.mark.parametrize("pointer", ["a", "a/b", "#/a", "/a~", "/a~2", "/~a/b", "/a/-", "/-"])
def test_a_malformed_pointer_is_refused_at_configuration(pointer: str) -> None:
    with pytest.raises(UsageError, match="JSON Pointer"):
        parse_pointer(pointer)
