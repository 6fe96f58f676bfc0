"""A clock that stands still until a test moves it."""

from __future__ import annotations


class FakeClock:
    """A clock to give to a store; calling it returns epoch seconds.

    It starts at a whole number of seconds, so that a lease ends at exactly the
    moment that a test computes.
    """

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        """Set the clock.

        Args:
            now: epoch seconds.
        """
        self._now = now

    def __call__(self) -> float:
        """Return the time that the clock shows, in epoch seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock forwards, or backwards where `seconds` is negative."""
        self._now += seconds
