"""Join byte strings so that nobody can move a border between them.

Every digest of several values goes through `frame`, which writes down how long
each part is, so `("a", "bc")` and `("ab", "c")` never meet (rules K4, F1).
"""

from __future__ import annotations

import struct
from typing import Final

_LAYOUTS: Final = [struct.Struct(f">{count + 1}Q") for count in range(16)]


def frame(*parts: bytes) -> bytes:
    """Join parts into one byte string from which each could be read back.

    In front stand the number of parts and the length of each, as big-endian 64
    bit integers. Different sequences of parts never give the same result,
    whatever the bytes are.
    """
    count = len(parts)
    layout = _LAYOUTS[count] if count < len(_LAYOUTS) else struct.Struct(f">{count + 1}Q")
    return layout.pack(count, *map(len, parts)) + b"".join(parts)


def text(value: str) -> bytes:
    """Encode a text for a frame; unlike plain UTF-8 it never fails.

    A lone surrogate (which a server may make of an undecodable path) keeps its
    own bytes instead of raising.
    """
    return value.encode("utf-8", "surrogatepass")
