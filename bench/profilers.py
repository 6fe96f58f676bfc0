"""Where a server spends its time: by cProfile, or by samples of its stack.

cProfile counts every call, and makes every call dearer, so that many small functions
look worse than they are; samples do not, but tell no counts.
"""

from __future__ import annotations

import cProfile
import io
import pstats
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.sampling import sampling

TOP = 60


@contextmanager
def by_cprofile(file: Path) -> Iterator[None]:
    """Profile the block; write the functions by own time, and by time with what they call."""
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        out = io.StringIO()
        found = pstats.Stats(profile, stream=out)
        found.sort_stats("tottime").print_stats(TOP)
        found.sort_stats("cumulative").print_stats(TOP)
        file.write_text(out.getvalue(), encoding="utf-8")


@contextmanager
def by_samples(file: Path) -> Iterator[None]:
    """Sample the block; write the functions by samples."""
    with sampling() as samples:
        yield
    file.write_text(samples.table(TOP), encoding="utf-8")


PROFILERS: Mapping[str, Callable[[Path], AbstractContextManager[None]]] = {
    "cprofile": by_cprofile,
    "sampling": by_samples,
}
