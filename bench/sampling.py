"""Where a process spends its processor time, without slowing it down.

cProfile makes every call dearer, so that many small functions look worse than they
are. Here the system's profiling timer interrupts the process after each stretch of
processor time (a few milliseconds, as the kernel has it), and the functions on the
stack are counted.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SECONDS = 0.001
PLACES = 3  # parts of a file's path that are shown


class Samples:
    """Counted samples.

    Attributes:
        own: by function, samples in which it ran itself.
        total: by function, samples in which it or what it called ran.
        count: all samples.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.own: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self.count = 0

    def take(self, _: int, frame: FrameType | None) -> None:
        """Count the stack (a handler of signals)."""
        self.count += 1
        stack = []
        while frame is not None:
            code = frame.f_code
            place = "/".join(Path(code.co_filename).parts[-PLACES:])
            stack.append(f"{code.co_qualname} ({place})")
            frame = frame.f_back
        self.own.update(stack[:1])
        self.total.update(set(stack))

    def table(self, top: int) -> str:
        """Return the functions with most samples of their own, and those with most in all."""
        lines = [f"{self.count} samples"]
        for title, counter in (("own time", self.own), ("with what it calls", self.total)):
            lines += ["", f"{title}:"]
            lines += [
                f"{100 * times / max(1, self.count):6.1f} %  {name}"
                for name, times in counter.most_common(top)
            ]
        return "\n".join([*lines, ""])


@contextmanager
def sampling() -> Iterator[Samples]:
    """Sample this process; only its main thread's stack is seen."""
    samples = Samples()
    before = signal.signal(signal.SIGPROF, samples.take)
    signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS)
    try:
        yield samples
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
