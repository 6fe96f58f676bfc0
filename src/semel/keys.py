"""New idempotency keys: the one place that reads the clock and draws randomness for them."""

from __future__ import annotations

import os
import time

from semel.core.ids import uuid7


def new_key() -> str:
    """Make a fresh key: a UUIDv7, which carries its birth time (RFC 9562, section 5.7)."""
    return str(uuid7(time.time_ns() // 1_000_000, os.urandom(10)))
