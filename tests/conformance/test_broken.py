"""The conformance suite catches stores that are broken on purpose, and only those."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from conformance.broken import CAUGHT_BY
from semel.testing.conformance import Group, StoreConformance

BROKEN = Path(__file__).with_name("broken.py")
GROUPS = [
    base
    for base in StoreConformance.__mro__
    if issubclass(base, Group) and base not in (Group, StoreConformance)
]


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Run the suite on all of them; return for each class the groups that failed."""
    report = tmp_path_factory.mktemp("broken") / "report.xml"
    arguments = ["-q", "--tb=no", "-p", "no:cacheprovider", f"--junitxml={report}", str(BROKEN)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=BROKEN.parents[2],
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    groups: dict[str, set[str]] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - our own file
        name = case.attrib["classname"].rsplit(".", 1)[1]
        found = groups.setdefault(name, set())
        assert case.find("error") is None, f"{name} broke off: {case.attrib['name']}"
        if case.find("failure") is not None:
            found.add(group_of(case.attrib["name"].split("[")[0]))
    return groups


def group_of(test: str) -> str:
    return next(group.__name__ for group in GROUPS if test in vars(group))


@pytest.mark.rule("S4")
@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_fault_is_caught_by_its_group(failed: dict[str, set[str]], name: str) -> None:
    expected = CAUGHT_BY[name]
    assert expected <= failed[name]
    if not expected:
        assert failed[name] == set(), "a sound store was found broken"


@pytest.mark.rule("S4")
def test_every_store_that_was_run_is_judged(failed: dict[str, set[str]]) -> None:
    assert set(failed) == set(CAUGHT_BY)
    assert sum(bool(groups) for groups in failed.values()) >= 5


def test_no_group_hides_a_test_of_another() -> None:
    names = [name for group in GROUPS for name in vars(group) if name.startswith("test_")]
    assert len(names) == len(set(names)) > 80
