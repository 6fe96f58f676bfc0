"""Rule F2, two-sided, against an exact reader that shares no code with Semel.

The reader: `json` with `Decimal` for every number, objects without order, and
every value tagged with its type, so that `true` is no number. It is slow and
obvious; the normal form must agree with it on every pair of texts.
"""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from semel.core.jsonvalue import normal_form

# ---- the exact reader ------------------------------------------------------------


def exact(text: str) -> object:
    return tagged(json.loads(text, parse_float=Decimal, parse_int=Decimal))


def tagged(value: object) -> object:
    match value:
        case dict():
            return ("object", frozenset((name, tagged(each)) for name, each in value.items()))
        case list():
            return ("array", tuple(map(tagged, value)))
        case Decimal():
            return ("number", value)
        case _:
            return (type(value).__name__, value)


# ---- values, and ways to spell them ----------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)

# Numbers as (sign, digits, exponent): few digits and exponents, so that equal
# values meet by chance, and long ones.
numbers = st.tuples(
    st.sampled_from(["", "-"]),
    st.one_of(
        st.text("0159", min_size=1, max_size=4),
        st.text("0123456789", min_size=38, max_size=45),
    ),
    st.one_of(st.integers(-4, 4), st.integers(-50, 50), st.integers(-(10**9), 10**9)),
)

values = st.recursive(
    st.one_of(st.none(), st.booleans(), texts, numbers),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)

spaces = st.text(" \t\r\n", max_size=2)


@st.composite
def spelled_number(draw: st.DrawFn, sign: str, digits: str, exponent: int) -> str:
    """Spell sign, digits and exponent of ten in one of many ways."""
    zeros = draw(st.integers(0, 3))
    digits, exponent = digits + "0" * zeros, exponent - zeros
    point = draw(st.integers(0, len(digits)))
    whole, fraction, exponent = digits[:point], digits[point:], exponent + len(digits) - point
    whole = whole.lstrip("0") or "0"
    text = f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"
    if exponent == 0 and draw(st.booleans()):
        return text
    plus = draw(st.sampled_from(["", "+"])) if exponent >= 0 else "-"
    pad = "0" * draw(st.integers(0, 2))
    return f"{text}{draw(st.sampled_from('eE'))}{plus}{pad}{abs(exponent)}"


@st.composite
def spelled_text(draw: st.DrawFn, value: str) -> str:
    return '"' + "".join(draw(spelled_character(character)) for character in value) + '"'


@st.composite
def spelled_character(draw: st.DrawFn, character: str) -> str:
    plain = json.dumps(character, ensure_ascii=False)[1:-1]
    escaped = "".join(
        f"\\u{unit:04x}" for unit in memoryview(character.encode("utf-16-le")).cast("H")
    )
    return draw(st.sampled_from([plain, escaped, escaped.upper().replace("\\U", "\\u")]))


@st.composite
def spelled(draw: st.DrawFn, value: object) -> str:
    """Spell a value: order of members, white space, escapes and digits are drawn."""
    match value:
        case dict():
            members = draw(st.permutations(list(value.items())))
            inner = ",".join(
                draw(spaces) + draw(spelled_text(name)) + draw(spaces) + ":" + draw(spelled(each))
                for name, each in members
            )
            text = "{" + inner + draw(spaces) + "}"
        case list():
            text = "[" + ",".join(draw(spelled(each)) for each in value) + draw(spaces) + "]"
        case tuple():
            text = draw(spelled_number(*value))
        case str():
            text = draw(spelled_text(value))
        case _:
            text = json.dumps(value)
    return draw(spaces) + text + draw(spaces)


# ---- the two sides ---------------------------------------------------------------


@pytest.mark.rule("F2")
@given(data=st.data(), value=values)
def test_all_spellings_of_a_value_share_a_form(data: st.DataObject, value: object) -> None:
    one, other = data.draw(spelled(value)), data.draw(spelled(value))
    assert exact(one) == exact(other)
    assert normal_form(one.encode()) == normal_form(other.encode()) is not None


@pytest.mark.rule("F2")
@given(one=values.flatmap(spelled), other=values.flatmap(spelled))
@example(one="9007199254740993", other="9007199254740994")
@example(one="0.1", other="0.10000000000000001")
@example(one="1e400", other="1e401")
@example(one="true", other="1")
@example(one='{"a":null}', other="{}")
def test_a_form_is_shared_exactly_by_equal_values(one: str, other: str) -> None:
    same = normal_form(one.encode()) == normal_form(other.encode())
    assert same == (exact(one) == exact(other))


@pytest.mark.rule("F2")
@given(data=st.data(), value=values)
def test_the_smallest_change_makes_another_form(data: st.DataObject, value: object) -> None:
    one, other = data.draw(spelled(value)), data.draw(spelled(data.draw(changed(value))))
    assume(exact(one) != exact(other))
    assert normal_form(one.encode()) != normal_form(other.encode())


@st.composite
def changed(draw: st.DrawFn, value: object) -> object:
    """Change one place in a value a little."""
    match value:
        case dict() if value:
            name = draw(st.sampled_from(sorted(value)))
            rest = {key: each for key, each in value.items() if key != name}
            return draw(st.sampled_from([rest, {**value, name: draw(changed(value[name]))}]))
        case list() if value:
            index = draw(st.integers(0, len(value) - 1))
            return [*value[:index], draw(changed(value[index])), *value[index + 1 :]]
        case (str(sign), str(digits), int(exponent)):
            other = str(int(digits) + 1).rjust(len(digits), "0")
            return draw(
                st.sampled_from([(sign, digits, exponent + 1), (sign, other, exponent), digits])
            )
        case str():
            return value + draw(st.sampled_from(["\0", " ", "0"]))
        case bool():
            return draw(st.sampled_from([not value, ("", str(int(value)), 0)]))
        case _:
            return draw(st.sampled_from([False, "", ("", "0", 0), "null"]))


@pytest.mark.rule("F2", "F7")
@given(body=st.one_of(st.binary(), st.text('[]{}",:\\ud8019.eE+-ntrufalse NI', max_size=60)))
def test_no_body_raises(body: bytes | str) -> None:
    raw = body.encode() if isinstance(body, str) else body
    form = normal_form(raw)
    # A form stands for itself, unless it holds a pair that no body can hold.
    assert form is None or b"[NaN," in form or normal_form(form) == form
