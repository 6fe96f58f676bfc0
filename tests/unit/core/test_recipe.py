"""Recipes and their text."""

from __future__ import annotations

import pytest

from semel.core.recipe import Recipe
from semel.errors import RecipeUnknownError, UsageError


@pytest.mark.rule("F1")
@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        (Recipe(), "1"),
        (Recipe(secret="9f86d081"), "1 s=9f86d081"),
        (Recipe(function="payment@2"), "1 f=payment@2"),
        (
            Recipe(ignore=("/client_time", "/a b/%~0"), headers=("X-B", "x-a"), secret="00ff00ff"),
            "1 s=00ff00ff h=x-a h=x-b i=/a%20b/%25~0 i=/client_time",
        ),
    ],
)
def test_a_recipe_is_a_short_text_and_comes_back(recipe: Recipe, text: str) -> None:
    assert recipe.encode() == text
    assert Recipe.decode(text) == recipe


@pytest.mark.rule("F1")
def test_equal_settings_make_equal_recipes() -> None:
    assert Recipe(ignore=("/b", "/a", "/b"), headers=("X", "x")) == Recipe(
        ignore=("/a", "/b"), headers=("x",)
    )


@pytest.mark.rule("F1")
@pytest.mark.parametrize(
    "text",
    [
        "2",
        "2 s=9f86d081",
        "",
        "01",
        "1 ",
        " 1",
        "1 z=new",
        "1 s",
        "1 s=",
        "1 i=a",
        "1 i=/b i=/a",
        "1 i=/a i=/a",
        "1 h=X",
        "1 h=a%20b",
        "1 i=/%ff",
        "1 i=/%41",
        "1 s=a s=b",
        "1 f=x@1 i=/a",
        "1 i=/a s=9f86d081",
        "nonsense",
    ],
)
def test_a_newer_recipe_or_nonsense_is_refused(text: str) -> None:
    with pytest.raises(RecipeUnknownError, match="can not follow"):
        Recipe.decode(text)


@pytest.mark.rule("F4")
def test_a_recipe_that_would_hide_too_much_is_refused() -> None:
    with pytest.raises(UsageError, match="whole body"):
        Recipe(ignore=("/a", ""))
    with pytest.raises(UsageError, match="slash"):
        Recipe(ignore=("a",))
    with pytest.raises(UsageError, match="header name"):
        Recipe(headers=("no spaces",))
    with pytest.raises(UsageError, match="not both"):
        Recipe(function="payment@1", ignore=("/a",))
    with pytest.raises(UsageError, match="not both"):
        Recipe(function="payment@1", headers=("a",))
