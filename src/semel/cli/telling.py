"""How the demo runs: start the service, tell the story, show the table, clean up."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from semel.cli.failures import ExitCode, complain
from semel.cli.story import TOKEN, Line, Story
from semel.cli.subject import NotStartedError, Subject
from semel.opening import scrubbed

# Short, so that the claim of the service that is killed is soon free again.
LEASE = "2"
# What is not a terminal gets the table in one piece.
WIDTH = 110
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_demo(store: str, *, once: bool, options: Sequence[str] = ()) -> ExitCode:
    """Start the service, tell the story, and clean up whatever happens.

    Args:
        store: the address of the store; empty for a temporary file of SQLite.
        once: end after the story.
        options: more options for the service.
    """
    me = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        if me is not None:
            loop.add_signal_handler(number, me.cancel)
    with tempfile.TemporaryDirectory(prefix="semel-demo-") as folder:
        url = store or f"sqlite:///{folder}/demo.db"
        options = ("--migrate", "--test-faults", "--lease", LEASE, *options)
        subject = Subject(url, Path(folder) / "service.log", options)
        try:
            return await _show(subject, once=once)
        except NotStartedError as error:
            complain(scrubbed(str(error), url))
            known = error.exit_code in (ExitCode.USAGE, ExitCode.STORE)
            return ExitCode(error.exit_code) if known and error.exit_code else ExitCode.FAILED
        except asyncio.CancelledError:
            return ExitCode.INTERRUPTED
        finally:
            await subject.stop()


async def _show(subject: Subject, *, once: bool) -> ExitCode:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    with console.status("starting the service …") as status:
        await subject.start()
        lines = await Story(subject).tell(lambda what: status.update(f"{what} …"))
    console.print(_table(lines, console.encoding))
    broken = sum(not line.holds for line in lines)
    if broken:
        console.print(f"{broken} of {len(lines)} lines did not hold.")
    else:
        console.print("Every line held.")
    if not once:
        await _stay_open(subject, console)
    return ExitCode.FAILED if broken else ExitCode.OK


async def _stay_open(subject: Subject, console: Console) -> None:
    """Leave the service to the reader until Ctrl-C, or until it ends by itself."""
    for line in _invitation(subject.url):
        console.print(Text(line), soft_wrap=True)
    try:
        await subject.ended()
    except asyncio.CancelledError:
        console.print("\nStopped.")


def _invitation(url: str) -> Sequence[str]:
    order = """{"amount": 500, "currency": "RUB"}"""
    token = f"-H 'Authorization: Bearer {TOKEN}'"
    key = "-H 'Idempotency-Key: \"order-1\"'"
    json = "-H 'Content-Type: application/json'"
    return (
        "",
        f"The service is open on {url} until Ctrl-C. Send this twice, then with another amount:",
        f"curl -i {url}/payments {token} {key} {json} -d '{order}'",
        "and look how many payments there are:",
        f"curl '{url}/payments?count=true' {token}",
    )


def _table(lines: Sequence[Line], encoding: str) -> Table:
    signs = ("✓", "✗") if encoding.lower().startswith("utf") else ("ok", "NO")
    table = Table(box=box.SIMPLE_HEAD, title="One key, one payment", title_justify="left")
    table.add_column("")
    table.add_column("what happens")
    table.add_column("expected", no_wrap=True)
    table.add_column("seen")
    for line in lines:
        sign = Text(signs[0], "green") if line.holds else Text(signs[1], "bold red")
        table.add_row(sign, Text(line.what), Text(line.expected), Text(line.seen))
    return table
