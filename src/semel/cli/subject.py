"""The service that the demo talks to: a process of its own, which it may kill."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 10.0

_ANNOUNCEMENT = re.compile(rb"Semel reference service on (http://\S+:(\d+))\n")


class NotStartedError(Exception):
    """The service did not start.

    Attributes:
        exit_code: that of its process, or `None` where it was only too slow.
    """

    def __init__(self, message: str, exit_code: int | None) -> None:
        """Keep what the service said and how it ended."""
        super().__init__(message)
        self.exit_code = exit_code


class Subject:
    """A `semel serve` on a loopback port, the same one after a restart.

    Attributes:
        url: where it listens.
    """

    def __init__(self, store: str, errors: Path, options: Sequence[str] = ()) -> None:
        """Start nothing yet.

        Args:
            store: the address of the store.
            errors: a file for what the service writes to stderr; its temporary files
                go to the same folder.
            options: more options for `semel serve`.
        """
        self.url = ""
        self._store = store
        self._errors = errors
        self._options = tuple(options)
        self._port = "0"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the service and wait until it accepts connections.

        Raises:
            NotStartedError: it did not.
        """
        # The address may hold a password: it goes through the environment, where
        # a list of processes does not show it. -P: the folder that this runs in
        # is no place for modules. A session of its own: Ctrl-C is for the demo.
        command = ("-P", "-m", "semel", "serve", "--port", self._port, *self._options)
        with self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                # What a killed service leaves behind goes with the demo's folder.
                env={
                    **os.environ,
                    "SEMEL_STORE": self._store,
                    "TMPDIR": str(self._errors.parent),
                },
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        line = await self._first_line(self._process)
        found = _ANNOUNCEMENT.fullmatch(line)
        if found is None:
            await self.stop()
            raise NotStartedError(self._last_words(), self._process.returncode)
        self.url, self._port = found[1].decode(), found[2].decode()

    async def kill(self) -> None:
        """End the process with SIGKILL, as a power cut would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End the process; it may finish what it is doing."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._end(signal.SIGTERM)
        except TimeoutError:
            await self._end(signal.SIGKILL)

    async def ended(self) -> int:
        """Wait until the process ends by itself; returns its exit code."""
        if self._process is None:
            return 0
        return await self._process.wait()

    async def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(how)
        await process.wait()

    async def _first_line(self, process: asyncio.subprocess.Process) -> bytes:
        if process.stdout is None:
            return b""
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await process.stdout.readline()
                if not line:
                    await process.wait()
                return line
        except TimeoutError:
            return b""

    def _last_words(self) -> str:
        lines = self._errors.read_text("utf-8", "replace").strip().splitlines()
        said = lines[-1].removeprefix("semel: error: ") if lines else "it said nothing"
        return f"the service did not start: {said}"
