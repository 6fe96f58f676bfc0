"""One run of the benchmark: how long, what it says, what it had to leave out."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.processes import Load, Say
from bench.rounds import FULL, Length


@dataclass(slots=True)
class Run:
    """What every measurement is given.

    Attributes:
        length: of what is measured over HTTP.
        load: the process that sends the requests.
        say: tells whoever waits how far it is.
        left_out: by the figure's name, why it could not be measured.
    """

    length: Length
    load: Load
    say: Say
    left_out: dict[str, str] = field(default_factory=dict)

    def leave_out(self, name: str, reason: str) -> None:
        """Say that a figure can not be measured, and why."""
        self.left_out[name] = reason
        self.say(f"  {name} is left out: {reason}")

    @property
    def is_full(self) -> bool:
        """Whether this is no trial."""
        return self.length == FULL
