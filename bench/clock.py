"""Times within one process: the sides in turn, each for a while, in every round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

LEAST = 0.01  # seconds that one measurement takes at least, to be worth dividing


def loops_for(function: Callable[[], Any], seconds: float) -> int:
    """Return how often to call a function so that it takes about so many seconds."""
    loops = 1
    while (took := _timed(function, loops)) < min(LEAST, seconds):
        loops *= 2
    return max(1, round(loops * seconds / took))


def times(
    functions: Mapping[str, Callable[[], Any]], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Return seconds for a call of each function, in each round.

    Args:
        functions: by name.
        rounds: how many.
        seconds: how long each function is called in each round.
    """
    loops = {name: loops_for(function, seconds) for name, function in functions.items()}
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            found[name].append(_timed(function, loops[name]) / loops[name])
    return found


def _timed(function: Callable[[], Any], loops: int) -> float:
    begin = time.perf_counter()
    for _ in range(loops):
        function()
    return time.perf_counter() - begin
