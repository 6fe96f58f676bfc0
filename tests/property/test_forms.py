"""Queries, form bodies and recipes, for all inputs (rules F1, F3, F4)."""

from __future__ import annotations

from typing import TypeAlias
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from semel.core.forms import canonical_query, multipart, pairs, urlencoded
from semel.core.recipe import Recipe
from semel.errors import RecipeUnknownError

Pair: TypeAlias = tuple[bytes, bytes | None]
Part: TypeAlias = tuple[bytes, bytes]

small = st.one_of(st.binary(max_size=4), st.text("ab=& +%", max_size=3).map(str.encode))
pair_lists = st.lists(
    st.tuples(small, st.none() | small).filter(lambda pair: pair != (b"", None)), max_size=5
)


@st.composite
def spelled(draw: st.DrawFn, wanted: list[Pair]) -> bytes:
    """Spell pairs: spaces as + or %20, any byte escaped or not, empty pieces between."""

    def token(raw: bytes) -> bytes:
        escaped = quote_from_bytes(raw, safe=draw(st.sampled_from(["", "!$'()*,:@/?"])))
        return escaped.replace("%20", draw(st.sampled_from(["%20", "+"]))).encode()

    pieces = [
        token(name) + (b"" if value is None else b"=" + token(value)) for name, value in wanted
    ]
    gaps = [draw(st.sampled_from([b"&", b"&&"])) for _ in pieces]
    return b"".join(gap + piece for gap, piece in zip(gaps, pieces, strict=True))


@pytest.mark.rule("F3")
@given(data=st.data(), wanted=pair_lists)
def test_pairs_come_back_from_any_spelling(data: st.DataObject, wanted: list[Pair]) -> None:
    one, other = data.draw(spelled(wanted)), data.draw(spelled(wanted))
    assert pairs(one) == wanted
    assert urlencoded(one) == urlencoded(other)


@pytest.mark.rule("F3")
@given(one=st.binary(max_size=20), other=st.binary(max_size=20))
def test_forms_are_equal_exactly_for_equal_pairs(one: bytes, other: bytes) -> None:
    assert (urlencoded(one) == urlencoded(other)) == (pairs(one) == pairs(other))


@pytest.mark.rule("F1")
@given(data=st.data(), wanted=pair_lists)
def test_a_query_keeps_the_order_of_each_name_only(data: st.DataObject, wanted: list[Pair]) -> None:
    shuffled = data.draw(st.permutations(wanted))
    one, other = data.draw(spelled(wanted)), data.draw(spelled(shuffled))
    names = {name for name, _ in wanted}
    kept = all(
        [value for key, value in wanted if key == name]
        == [value for key, value in shuffled if key == name]
        for name in names
    )
    assert (canonical_query(one) == canonical_query(other)) == kept


part_lists = st.lists(
    st.tuples(st.text("abc", max_size=2).map(str.encode), st.binary()), max_size=4
)
boundaries = st.text("-'XYZ09", min_size=1, max_size=9).map(str.encode)


def encoded(parts: list[Part], boundary: bytes) -> bytes:
    chunks = [
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
        % (boundary, name, content)
        for name, content in parts
    ]
    return b"".join(chunks) + b"--%b--\r\n" % boundary


@pytest.mark.rule("F3")
@given(one=part_lists, other=part_lists, boundary=boundaries, another=boundaries)
def test_a_multipart_form_depends_on_its_parts_only(
    one: list[Part], other: list[Part], boundary: bytes, another: bytes
) -> None:
    for parts, separator in ((one, boundary), (one, another), (other, another)):
        assume(not any(b"--" + separator in content for _, content in parts))
    form = multipart(encoded(one, boundary), boundary)
    assert form is not None
    assert form == multipart(encoded(one, another), another)
    assert (form == multipart(encoded(other, another), another)) == (one == other)


@pytest.mark.rule("F3", "F7")
@given(body=st.text("-B\r\nX:1 ", max_size=40), boundary=st.sampled_from([b"", b"B", b"BB"]))
def test_no_multipart_body_raises(body: str, boundary: bytes) -> None:
    form = multipart(body.encode(), boundary)
    assert form is None or boundary in body.encode()


tokens = st.text(st.characters(exclude_categories=["Cs"]), max_size=4).map(
    lambda each: each.replace("~", "~0").replace("/", "~1")
)
pointers = st.lists(tokens.filter(lambda each: each != "-"), min_size=1, max_size=3).map(
    lambda tokens: "/" + "/".join(tokens)
)
recipes = st.builds(
    Recipe,
    ignore=st.lists(pointers, max_size=3).map(tuple),
    headers=st.lists(st.text("aB-9", min_size=1, max_size=4), max_size=3).map(tuple),
    secret=st.none() | st.text("0123456789abcdef", min_size=8, max_size=8),
)


@pytest.mark.rule("F1", "F4")
@given(one=recipes, other=recipes)
def test_recipes_come_back_and_are_told_apart(one: Recipe, other: Recipe) -> None:
    assert Recipe.decode(one.encode()) == one
    assert (one.encode() == other.encode()) == (one == other)


@pytest.mark.rule("F1")
@given(text=st.text("1 sfhi=/a%~0@", max_size=12))
def test_a_recipe_is_followed_exactly_or_refused(text: str) -> None:
    try:
        recipe = Recipe.decode(text)
    except RecipeUnknownError:
        return
    assert recipe.encode() == text
