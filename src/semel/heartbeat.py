"""One heartbeat for all claims of a process (rule A4).

It has a thread and a connection of its own, so that an exhausted pool or a
blocked event loop does not lose a lease. A renewal that fails is tried again at
the next beat; a claim that has gone to another owner is reported as lost.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from semel.errors import SemelError
from semel.events import Event, EventHook, emit
from semel.store.programs import renew
from semel.store.protocol import Link
from semel.store.statement import pump
from semel.store.values import Held

# Renewals per lease: two may fail before the lease runs out.
BEATS_PER_LEASE = 3


@dataclass(frozen=True, slots=True)
class _Kept:
    held: Held
    lease: float
    on_lost: Callable[[], None]


class Heartbeat:
    """Renews leases from a thread that lives while there is something to renew."""

    def __init__(
        self, connect: Callable[[], AbstractContextManager[Link]], on_event: EventHook | None
    ) -> None:
        """Start nothing yet: a process may fork between now and the first claim.

        Args:
            connect: opens the reserved connection.
            on_event: is told of renewals that failed.
        """
        self._connect = connect
        self._on_event = on_event
        self._kept: dict[bytes, _Kept] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._due = math.inf
        self._asleep_until = math.inf
        self._stopping = False

    def keep(self, held: Held, lease: float, on_lost: Callable[[], None]) -> None:
        """Renew a claim from now on.

        Args:
            held: the claim.
            lease: seconds.
            on_lost: called from the thread, once, when the claim is lost.
        """
        if self._pid != os.getpid():  # the first claim of this process
            self._changed, self._kept, self._thread = threading.Condition(), {}, None
            self._due, self._pid = math.inf, os.getpid()
        with self._changed:
            self._stopping = False
            self._kept[held.owner] = _Kept(held, lease, on_lost)
            due = time.monotonic() + lease / BEATS_PER_LEASE
            self._due = min(self._due, due)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._beat, name="semel-heartbeat", daemon=True
                )
                self._thread.start()
            elif due < self._asleep_until:  # hardly ever: switching threads is expensive
                self._changed.notify()

    def drop(self, held: Held) -> None:
        """Renew a claim no longer; called before it is settled."""
        with self._changed:
            self._kept.pop(held.owner, None)

    def stop(self) -> None:
        """End the thread and close its connection."""
        with self._changed:
            self._stopping = True
            self._kept.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join()

    def _beat(self) -> None:
        with ExitStack() as connection:
            link: Link | None = None
            while self._wait():
                with self._changed:
                    kept = list(self._kept.values())
                if not kept:
                    continue
                try:
                    link = link or connection.enter_context(self._connect())
                    lost = pump(link, renew([(one.held, one.lease) for one in kept]))
                except (SemelError, OSError) as error:
                    emit(self._on_event, Event("renewal-failed", detail=str(error)))
                    link = None
                    connection.close()
                    continue
                self._report(kept, lost)

    def _wait(self) -> bool:
        """Wait until the next beat is due; false means that the thread should end.

        A claim that needs an earlier beat wakes this up, and none puts off the beat
        that the older ones are waiting for. With all claims settled the sleep goes on:
        the claims of a busy process begin and end within it.
        """
        with self._changed:
            while not self._stopping:
                if not self._kept:
                    self._due = self._asleep_until = math.inf
                    self._changed.wait()
                    continue
                left = self._due - time.monotonic()
                if left <= 0:
                    shortest = min(one.lease for one in self._kept.values())
                    self._due = time.monotonic() + shortest / BEATS_PER_LEASE
                    return True
                self._asleep_until = self._due
                self._changed.wait(left)
            return False

    def _report(self, kept: list[_Kept], lost: set[bytes]) -> None:
        for one in kept:
            if one.held.owner not in lost:
                continue
            with self._changed:
                still = self._kept.pop(one.held.owner, None)
            if still is not None:
                one.on_lost()
