"""B9: `import semel` in new processes, and what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from bench.figures import KINDS, Figure
from bench.processes import ROOT
from bench.run import Run

ROUNDS = 15
TRIAL = 3
SECONDS = 20.0  # at most, for a process
MILLI = 1e3

IMPORT = """
import sys, time
before = set(sys.modules)
begin = time.perf_counter()
import semel
{more}
took = time.perf_counter() - begin
new = {{name.partition(".")[0] for name in set(sys.modules) - before}} - {{"semel"}}
import json
print(json.dumps([took, sorted(new - sys.stdlib_module_names)]))
"""
PLAIN = IMPORT.format(more="")
NAMES = IMPORT.format(more="[getattr(semel, name) for name in semel.__all__]")


def measure_all(run: Run) -> Iterator[Figure]:
    """Measure both, in turn; the first of each fills the system's cache of files."""
    run.say("B9")
    rounds = ROUNDS if run.is_full else TRIAL
    found = [(_import(PLAIN), _import(NAMES)) for _ in range(rounds + 1)][1:]
    plain, names = zip(*found, strict=True)
    foreign = sorted({name for _, loaded in plain for name in loaded})
    yield Figure(KINDS["B9_import"], [took * MILLI for took, _ in plain])
    yield Figure(KINDS["B9_import_names"], [took * MILLI for took, _ in names])
    yield Figure(KINDS["B9_third_party"], [len(loaded) for _, loaded in plain], {"names": foreign})


def _import(text: str) -> tuple[float, list[str]]:
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", text],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    took, loaded = json.loads(done.stdout)
    return took, loaded
