"""How tests make the service fail on purpose: the header `X-Semel-Test`.

It is only obeyed with `--test-faults`, on a loopback address. Directives are
separated by semicolons and happen in the order in which they are written:

    hold-before=NAME   wait before the effect until NAME is released
    fail-before        raise before the effect
    hold=NAME          wait after the effect until NAME is released
    delay=SECONDS      sleep after the effect
    fail-after         raise after the effect
    die                kill this process (SIGKILL) after the effect
    status=N           answer N after the effect
    set-cookie         set two cookies in the answer

A held request is a datagram socket in a folder that all workers share, so that
any of them can list and release it; one that died with its process is found out.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

HEADER = "x-semel-test"
MAX_DELAY = 3600.0

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_STATUSES = range(200, 600)


class FaultUnknownError(ValueError):
    """The header holds something that is no directive."""


class PlannedFailureError(Exception):
    """The failure that a test asked for."""


@dataclass(frozen=True, slots=True)
class Directive:
    """One thing to do, with its value where it takes one."""

    name: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A request that waits inside its handler.

    Attributes:
        name: what it waits for.
        process: the id of the process that it is in.
    """

    name: str
    process: int


class Holds:
    """Lets requests wait for each other across the service's processes."""

    def __init__(self, folder: Path) -> None:
        """Use a folder that all processes of the service know."""
        self._folder = folder

    async def wait(self, name: str) -> None:
        """Wait until somebody releases this name."""
        path = self._folder / f"{name}.{os.getpid()}.{secrets.token_hex(4)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
            inbox.settimeout(0)
            inbox.bind(str(path))
            try:
                await asyncio.get_running_loop().sock_recv(inbox, 1)
            finally:
                path.unlink(missing_ok=True)

    def waiting(self) -> list[Held]:
        """Return who waits now."""
        return [held for held, outbox in self._each() if _try(outbox, b"")]

    def release(self, name: str) -> int:
        """Let those go on who wait for this name; returns how many."""
        return sum(_try(path, b"!") for held, path in self._each() if held.name == name)

    def _each(self) -> list[tuple[Held, Path]]:
        found = []
        for path in sorted(self._folder.iterdir()):
            name, process, _ = path.name.split(".")
            found.append((Held(name, int(process)), path))
        return found


def _try(path: Path, message: bytes) -> bool:
    """Reach whoever waits at a socket; the leftover of a dead process is removed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outbox:
        try:
            outbox.connect(str(path))
            if message:
                outbox.send(message)
        except FileNotFoundError:
            return False
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return False
    return True


@dataclass(frozen=True, slots=True)
class Plan:
    """What one request asks to go wrong."""

    directives: Sequence[Directive] = ()
    holds: Holds | None = None

    async def before(self) -> None:
        """Do what is to happen before the effect."""
        for directive in self.directives:
            if directive.name == "hold-before" and self.holds:
                await self.holds.wait(directive.value)
            elif directive.name == "fail-before":
                raise PlannedFailureError("before the effect, as the test asked")

    async def after(self) -> None:
        """Do what is to happen after the effect and before the answer."""
        for directive in self.directives:
            match directive.name:
                case "hold" if self.holds:
                    await self.holds.wait(directive.value)
                case "delay":
                    await asyncio.sleep(float(directive.value))
                case "fail-after":
                    raise PlannedFailureError("after the effect, as the test asked")
                case "die":
                    os.kill(os.getpid(), signal.SIGKILL)

    @property
    def status(self) -> int | None:
        """The status to answer with, instead of the handler's own."""
        asked = [int(one.value) for one in self.directives if one.name == "status"]
        return asked[-1] if asked else None

    @property
    def sets_cookies(self) -> bool:
        """Whether the answer is to set cookies."""
        return any(one.name == "set-cookie" for one in self.directives)


class Faults:
    """Reads the header, where the service was started to obey it."""

    def __init__(self, holds: str | None) -> None:
        """Obey the header if there is a folder for held requests."""
        self.holds = Holds(Path(holds)) if holds else None

    def plan(self, values: Sequence[str]) -> Plan:
        """Return what the lines of the header ask for.

        Raises:
            FaultUnknownError: something else than the directives of this module.
        """
        if self.holds is None or not values:
            return Plan()
        parts = [part.strip() for part in ";".join(values).split(";")]
        return Plan(tuple(_directive(part) for part in parts if part), self.holds)


def _directive(text: str) -> Directive:
    name, equals, value = text.partition("=")
    check = _CHECKS.get(name)
    if check is None or (check is not _is_absent and not equals) or not check(value):
        raise FaultUnknownError(
            f"{HEADER}: not a directive; use delay=SECONDS, hold=NAME, hold-before=NAME, "
            "fail-before, fail-after, status=N (200 to 599), set-cookie or die, "
            "separated by semicolons"
        )
    return Directive(name, value)


def _is_absent(value: str) -> bool:
    return not value


def _is_name(value: str) -> bool:
    return bool(_NAME.fullmatch(value))


def _is_delay(value: str) -> bool:
    with suppress(ValueError):
        seconds = float(value)
        return math.isfinite(seconds) and 0 <= seconds <= MAX_DELAY
    return False


def _is_status(value: str) -> bool:
    with suppress(ValueError):
        return int(value) in _STATUSES
    return False


_CHECKS: dict[str, Callable[[str], bool]] = {
    "hold-before": _is_name,
    "fail-before": _is_absent,
    "hold": _is_name,
    "delay": _is_delay,
    "fail-after": _is_absent,
    "die": _is_absent,
    "status": _is_status,
    "set-cookie": _is_absent,
}
