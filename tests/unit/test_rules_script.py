"""`script/rules` finds what it is there to find."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "script" / "rules"

MARKED = """
import pytest

pytestmark = pytest.mark.rule("K1")

@pytest.mark.rule("A1", "A2")
class TestClaims:
    @pytest.mark.rule("O1")
    async def test_inner(self): ...

def test_outer(): ...
"""


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("rules", str(SCRIPT))
    spec = importlib.util.spec_from_loader("rules", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_marks_of_module_and_class_count_for_their_tests(rules: ModuleType) -> None:
    tests = list(rules.tests_in(ast.parse(MARKED).body, "x.py", []))
    assert [test.ids for test in tests] == [["K1", "A1", "A2", "O1"], ["K1"]]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (["| K1 | kept | … |"], "K1 is kept, but no test names it"),
        (["| K2 | partly (no dates) | … |"], "K2 is partly, but no test names it"),
        (["| A1 | partly | … |"], "A1 is kept partly, but does not say what is missing"),
        (["| A1 | kept | … |", "| A1 | kept | … |"], "A1 stands 2 times"),
    ],
)
def test_a_fault_of_the_list_is_named(rules: ModuleType, rows: list[str], fault: str) -> None:
    found = [rules.ROW.fullmatch(row) for row in rows]
    assert list(rules.faults_of_list(found, {"A1"})) == [fault]


def test_a_list_in_order_has_no_fault(rules: ModuleType) -> None:
    rows = ["| A1 | kept | … |", "| A2 | partly (no dates) | … |", "| A3 | planned | … |"]
    found = [rules.ROW.fullmatch(row) for row in rows]
    assert list(rules.faults_of_list(found, {"A1", "A2"})) == []


@pytest.mark.parametrize(
    ("ids", "fault"),
    [
        (["A9"], "x.py:1 names A9, which is no rule"),
        (["A1", "A1"], "x.py:1 names a rule twice"),
        (["A1", "A2", "A3", "A4"], "x.py:1 names 4 rules; 3 at most"),
    ],
)
def test_a_fault_of_a_mark_is_named(rules: ModuleType, ids: list[str], fault: str) -> None:
    test = rules.Test("x.py:1", ids)
    assert list(rules.faults_of_test(test, {"A1", "A2", "A3", "A4"})) == [fault]
