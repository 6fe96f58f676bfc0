"""One side under load, profiling itself."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from bench import b3
from bench.processes import Profile, RunError, fresh_database, load, make_tables, serving
from bench.rounds import Length
from bench.sides import IDEMKIT, Side


def profile(side: Side, profiler: str, length: Length) -> str:
    """Return what the profiler of a server found; warm-up and one round are in it.

    Raises:
        RunError: it gave a wrong answer, or wrote nothing.
    """
    if side is IDEMKIT:
        raise RunError("idemkit has no profile: its environment has only what is measured")
    with tempfile.TemporaryDirectory() as folder, fresh_database() as database:
        file = Path(folder) / "profile.txt"
        asyncio.run(make_tables(database))
        with load() as sender:
            with serving([side], database, profile=Profile(file, profiler)) as servers:
                (server,) = servers
                keys = None
                if side.settled:
                    b3.settle_keys(sender, servers, database)
                    keys = b3.KEYS
                sender.run(server, length.warm_up, keys)
                answers = sender.run(server, length.seconds, keys)
            if not file.exists():
                raise RunError(f"{side.name} wrote no profile")
            found = file.read_text(encoding="utf-8")
    return f"{side.name}: {answers.answers} answers in {answers.seconds:.1f} s\n{found}"
