"""Every probe in a module of its own; `ALL` is the order in which they run."""

from semel.check.model import Probe
from semel.check.probes import replay

ALL: tuple[Probe, ...] = (replay.PROBE,)
