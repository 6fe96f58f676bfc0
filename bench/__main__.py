"""`script/bench`: measure, and write bench/results.json and bench/RESULTS.md."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, ModuleType

from bench import b1, b2, b3, b8, b9, environment, results
from bench.figures import Figure
from bench.processes import ROOT, RunError, load
from bench.profiled import profile
from bench.profilers import PROFILERS
from bench.rounds import FULL, QUICK
from bench.run import Run
from bench.sides import SIDES

MODULES: Mapping[str, ModuleType] = {"B1": b1, "B2": b2, "B3": b3, "B8": b8, "B9": b9}
FOLDER = Path(__file__).resolve().parent
TRIAL = ROOT / "build" / "bench"  # a quick run's results are no results
FULL_LIMIT = 2400  # seconds after which a run gives up
QUICK_LIMIT = 300


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; returns 1 or 130 where the run broke off, 0 also where a bar is not met."""
    wish = _parser().parse_args(arguments)
    _give_up_after(QUICK_LIMIT if wish.quick or wish.profile else FULL_LIMIT)
    try:
        if wish.render:
            results.write(FOLDER, results.read(FOLDER))
        elif wish.profile:
            print(profile(SIDES[wish.profile], wish.profiler, QUICK if wish.quick else FULL))
        else:
            _measure(wish, arguments)
    except RunError as error:
        print(f"script/bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("script/bench: interrupted", file=sys.stderr)
        return 130
    return 0


def _measure(wish: argparse.Namespace, arguments: Sequence[str] | None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    folder = TRIAL if wish.quick else FOLDER
    origin = {
        "command": shlex.join(["script/bench", *given]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment.describe(),
    }
    with load() as sender:
        run = Run(QUICK if wish.quick else FULL, sender, _say)
        for rule in wish.only or MODULES:
            measure_all: Callable[[Run], Iterator[Figure]] = MODULES[rule].measure_all
            figures = []
            for figure in measure_all(run):
                figures.append(figure)
                _say(_told(figure))
            # After each rule, so that a later one that breaks off costs nothing.
            found = results.merged(results.read(folder), figures, run.left_out, origin)
            results.write(folder, found)
    _say(f"written: {folder.relative_to(ROOT)}/{results.JSON} and {results.PAGE}")


def _told(figure: Figure) -> str:
    found = figure.as_result()
    met = {True: "met", False: "NOT met", None: "no bar"}[found["met"]]
    spread = f"{found['low']} … {found['high']}"
    return f"  {figure.kind.name}: {found['value']} {found['unit']} ({spread}; {met})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("script/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a trial: results in build/bench")
    parser.add_argument("--only", nargs="+", choices=MODULES, help="measure these rules only")
    parser.add_argument("--profile", choices=SIDES, help="print where one server spends its time")
    parser.add_argument("--profiler", choices=PROFILERS, default="cprofile")
    parser.add_argument("--render", action="store_true", help="only write RESULTS.md anew")
    return parser


def _give_up_after(seconds: int) -> None:
    def give_up(_: int, __: FrameType | None) -> None:
        raise RunError(f"not done after {seconds} seconds")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
