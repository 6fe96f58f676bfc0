"""A small memory of keys that are settled (rule A3).

It only decides whether a look comes before the claim; it never answers anything,
so it may forget, and be wrong, without harm.
"""

from __future__ import annotations

from collections import OrderedDict

from semel.core.model import Identity


class Remembered:
    """The identities that this process last saw settled, at most `size` of them."""

    def __init__(self, size: int) -> None:
        """Start empty; a size of 0 remembers nothing."""
        self._size = size
        self._identities: OrderedDict[Identity, None] = OrderedDict()

    def __contains__(self, identity: Identity) -> bool:
        """Say whether the identity was settled not long ago."""
        return identity in self._identities

    def __len__(self) -> int:
        """Return how many identities are remembered."""
        return len(self._identities)

    def add(self, identity: Identity) -> None:
        """Remember an identity, and forget the oldest where there is no room."""
        self._identities[identity] = None
        self._identities.move_to_end(identity)
        while len(self._identities) > self._size:
            self._identities.popitem(last=False)

    def forget(self, identity: Identity) -> None:
        """Forget an identity that turned out to be free."""
        self._identities.pop(identity, None)
