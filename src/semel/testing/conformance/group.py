"""What the groups of the suite have in common: fixtures, and which tests apply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, TypeAlias, TypeVar

import pytest

from semel.testing.clock import FakeClock
from semel.testing.conformance.harness import Capabilities, Harness, Workbench

Test = TypeVar("Test", bound=Callable[..., Any])
Bench: TypeAlias = Workbench[Any]

_REQUIRED = "_semel_requires"


def requires(*capabilities: str) -> Callable[[Test], Test]:
    """Mark a test as one for stores with these capabilities (fields of `Capabilities`)."""

    def mark(test: Test) -> Test:
        setattr(test, _REQUIRED, capabilities)
        return test

    return mark


class Group:
    """A group of tests; a class for a store inherits groups and sets two things.

    Attributes:
        capabilities: what the store can do. Tests for more are not collected, and
            tests with a parameter `mode` run in each of its modes.
    """

    capabilities: ClassVar[Capabilities]

    def __init_subclass__(cls) -> None:
        """Leave out the tests that ask for more than this store can do."""
        super().__init_subclass__()
        if not hasattr(cls, "capabilities"):
            return
        own = set(vars(cls))
        for name in dir(cls):
            found = (vars(base).get(name) for base in cls.__mro__)
            test = next((one for one in found if one is not None), None)
            needed = getattr(test, _REQUIRED, None)
            if needed is None or name in own:
                continue
            wanted = test if all(getattr(cls.capabilities, one) for one in needed) else None
            if getattr(cls, name) is not wanted:
                setattr(cls, name, wanted)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test in each mode of the store."""
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", self.capabilities.modes, ids=str)

    @pytest.fixture
    def harness(self) -> Harness[Any]:
        """Return a harness on an empty database; each store's class has its own."""
        raise NotImplementedError

    @pytest.fixture
    async def bench(self, harness: Harness[Any]) -> AsyncIterator[Bench]:
        """Make a workbench with the store's own clock."""
        async for bench in _opened(harness, None):
            yield bench

    @pytest.fixture
    async def timed(self, harness: Harness[Any]) -> AsyncIterator[Bench]:
        """Make a workbench whose clock stands still until a test moves it."""
        async for bench in _opened(harness, FakeClock()):
            yield bench


async def _opened(harness: Harness[Any], clock: FakeClock | None) -> AsyncIterator[Bench]:
    bench = Workbench(harness, clock)
    try:
        await bench.open()
        await harness.prepare()
        yield bench
    finally:
        await bench.aclose()
