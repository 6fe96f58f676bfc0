from __future__ import annotations

import subprocess
import sys
import uuid

import pytest

import semel

LIMIT = 20  # a public face that fits on one screen


def test_every_public_name_exists_and_is_listed() -> None:
    for name in semel.__all__:
        assert getattr(semel, name) is not None
    assert dir(semel) == sorted(semel.__all__)
    assert len(semel.__all__) <= LIMIT


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = semel.nothing


@pytest.mark.rule("B9")
def test_importing_semel_loads_the_standard_library_only() -> None:
    program = (
        "import sys; before = set(sys.modules); import semel; "
        "[getattr(semel, name) for name in semel.__all__]; "
        "print(sorted({n.partition('.')[0] for n in set(sys.modules) - before} "
        "- sys.stdlib_module_names - {'semel'}))"
    )
    seen = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == "[]"


def test_a_new_key_is_a_fresh_uuid_of_version_7() -> None:
    keys = {semel.new_key() for _ in range(100)}
    assert len(keys) == 100
    assert {uuid.UUID(key).version for key in keys} == {7}
