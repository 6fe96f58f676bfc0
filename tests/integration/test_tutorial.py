"""The tutorial runs as it stands: its files, its changes, its commands, and what they print.

The page is followed from top to bottom. Real uvicorn processes run its files, and bash
runs its commands; only addresses are replaced. Then what each step printed is compared
with what the page says.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import metadata
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from semel.core.options import Options
from servers import ServerMissingError, needed, own_binaries
from serving import SECONDS, SEMEL, end

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
STORE = "postgresql+asyncpg://postgres@127.0.0.1/shop"
PSQL = "psql -h 127.0.0.1 -U postgres -d shop"
# What was done before the page begins: Semel is installed, and a fixture made the database.
BEFORE = re.compile(r"pip install '/path/to/semel\[(.+)\]'|createdb -h 127.0.0.1 -U postgres shop")
SERVE = re.compile(r"uvicorn (\w+):app(?: --port (\d+))?")
FUNCTION = re.compile(r"\w+\(\) \{ .* \}")
ANNOUNCEMENT = re.compile(r"INFO: +Uvicorn running on http://127\.0\.0\.1:(\d+) ")
# Seconds for what is done after an answer.
PATIENCE = 5.0


@dataclass(frozen=True)
class Block:
    """One fenced block of the page."""

    step: str
    language: str
    text: str


@dataclass(frozen=True)
class Line:
    """One command, what the page says that it prints, and what it printed."""

    step: str
    command: str
    expected: tuple[str, ...]
    printed: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether it printed that; `...` stands for anything, and empty lines do not count."""
        lines = [line for line in self.printed if line]
        return len(lines) == len(self.expected) and all(map(matches, self.expected, lines))


def matches(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.split("..."))
    return re.fullmatch(pattern, printed) is not None


def blocks(page: str) -> Iterator[Block]:
    """Take the page apart."""
    step = ""
    parts = r"^## (.+)$|^```(\w*)\n((?:.*\n)*?)```$"
    for heading, language, text in re.findall(parts, page, re.MULTILINE):
        step = heading or step
        if not heading:
            yield Block(step, language, text)


def commands(block: Block) -> Iterator[Line]:
    """Take a block of commands apart."""
    assert block.text.startswith("$ "), block
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *expected = part.splitlines()
        yield Line(block.step, command, tuple(expected))


def changed(code: str, change: str) -> str:
    """Make a change of the page's; each of its places is in the code exactly once."""
    for hunk in re.split(r"^@@\n", change, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        assert all(line[0] in "+- \n" for line in lines), hunk
        old = "\n" + "".join(line[1:] or line for line in lines if line[0] != "+")
        new = "\n" + "".join(line[1:] or line for line in lines if line[0] != "-")
        assert f"\n{code}".count(old) == 1, f"this is not exactly once in the file:{old}"
        code = f"\n{code}".replace(old, new)[1:]
    return code


def environment(home: Path) -> dict[str, str]:
    """Return an environment in which nobody's settings change what a command prints."""
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    if shutil.which("psql") is None:
        path.append(str(own_binaries()))
    # Two changes within a second would look the same to Python's cache.
    fixed = {"LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return {"PATH": os.pathsep.join(path), "HOME": str(home), **fixed}


class Server:
    """uvicorn with one of the page's files, on a port of its own choice."""

    def __init__(self, folder: Path, name: str) -> None:
        self.said = ""
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", f"{name}:app", "--port", "0"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                start_new_session=True,
                env=environment(folder),
            )
        try:
            self.port = self._port()
        except BaseException:
            end(self.process)
            raise

    def _port(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line
            if found := ANNOUNCEMENT.match(line):
                return found[1]
        pytest.fail(f"it did not start:\n{self.said}")

    def answered(self, status: int) -> int:
        """Return how many requests it has answered with a status."""
        return self._log.read_text("utf-8").count(f'HTTP/1.1" {status} ')

    def stop(self) -> int:
        """End it as Ctrl-C does, if it is still alive; returns its exit code."""
        assert self.process.stderr is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.said += self.process.stderr.read()
        self.process.stderr.close()
        return self.process.wait(SECONDS)


@dataclass
class Story:
    """The page as it was followed.

    Attributes:
        folder: where its files are.
        database: the address of its database.
        lines: every command that was run.
        killed: the steps in which a server was found dead.
        said: what the servers wrote to stderr.
    """

    folder: Path
    database: str
    lines: list[Line] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    said: str = ""
    _files: dict[str, str] = field(default_factory=dict)
    _servers: dict[str, Server] = field(default_factory=dict)
    _ports: dict[str, str] = field(default_factory=dict)
    _functions: list[str] = field(default_factory=list)

    def follow(self, page: str) -> None:
        """Do all that the page says, and end what it started."""
        try:
            for block in blocks(page):
                self._do(block)
            for name in list(self._servers):
                self._stop(name, "")
        finally:
            for server in self._servers.values():
                end(server.process)

    def at(self, number: int) -> list[tuple[str, ...]]:
        """Return what a step printed; all of it is what the page says."""
        lines = [line for line in self.lines if line.step.startswith(f"{number}. ")]
        assert lines, f"the page has no step {number}"
        for line in lines:
            assert line.holds, line
        return [line.printed for line in lines]

    def query(self, sql: str) -> list[tuple[object, ...]]:
        """Look into the database, as it is when the page ends."""
        with psycopg.connect(self.database, autocommit=True) as reader:
            return reader.execute(sql.encode()).fetchall()

    def _do(self, block: Block) -> None:
        if block.language == "python":
            name = re.match(r"# (\w+)\.py\n", block.text)
            assert name, "a file of the page begins with its name"
            self._files[name[1]] = block.text
        elif block.language == "diff":
            self._files["shop"] = changed(self._files["shop"], block.text)
        else:
            assert block.language == "console", block
            for line in commands(block):
                self._run(line)

    def _run(self, line: Line) -> None:
        if served := SERVE.fullmatch(line.command):
            self._start(line.step, served[1], served[2] or "8000")
        elif FUNCTION.fullmatch(line.command):
            self._functions.append(line.command)
        elif not BEFORE.fullmatch(line.command):
            self.lines.append(self._observed(line))

    def _observed(self, line: Line) -> Line:
        """Run a command; a file is looked at again while a task may still write it."""
        if " & " in line.command:
            return replace(line, printed=self._raced(line))
        give_up = time.monotonic() + PATIENCE
        done = replace(line, printed=self._printed(self._bash(line.command)))
        while line.command.startswith("cat ") and not done.holds and time.monotonic() < give_up:
            done = replace(line, printed=self._printed(self._bash(line.command)))
        return done

    def _raced(self, line: Line) -> tuple[str, ...]:
        """Hold the one whose endpoint runs at its row, until all others have their answers."""
        others = sum(" 409 " in expected for expected in line.expected)
        give_up = time.monotonic() + PATIENCE
        with psycopg.connect(self.database) as rival:
            rival.execute("LOCK TABLE payment IN SHARE ROW EXCLUSIVE MODE")
            racing = self._bash(line.command)
            while self._servers["shop"].answered(409) < others and time.monotonic() < give_up:
                pass
        return self._printed(racing)

    def _bash(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", self._addressed("\n".join([*self._functions, command]))],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # a terminal shows both
            text=True,
            encoding="utf-8",
            start_new_session=True,
            env=environment(self.folder),
        )

    def _printed(self, running: subprocess.Popen[str]) -> tuple[str, ...]:
        try:
            printed, _ = running.communicate(timeout=SECONDS)
        finally:
            end(running)
        return tuple(line.rstrip() for line in printed.splitlines())

    def _start(self, step: str, name: str, port: str) -> None:
        """Start a server with the file as it is now, in place of the one before."""
        if name in self._servers:
            self._stop(name, step)
        path = self.folder / f"{name}.py"
        path.write_text(self._addressed(self._files[name]), "utf-8")
        self._servers[name] = Server(self.folder, name)
        self._ports[port] = self._servers[name].port

    def _stop(self, name: str, step: str) -> None:
        server = self._servers.pop(name)
        if server.stop() == -signal.SIGKILL:
            self.killed.append(step)
        self.said += server.said

    def _addressed(self, text: str) -> str:
        """Replace the page's addresses by those of this test."""
        url = make_url(self.database).set(drivername="postgresql+asyncpg")
        text = text.replace(STORE, url.render_as_string(hide_password=False))
        text = text.replace(PSQL, f"psql {shlex.quote(self.database)}")
        text = re.sub(r"^semel ", f"{shlex.join(SEMEL)} ", text, flags=re.MULTILINE)
        for port, own in self._ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{own}")
        return text


def naive(story: Story) -> None:
    *_, total = story.at(1)
    assert total == ("alice|2|1000",)


def guarded(story: Story) -> None:
    story.at(2)
    paid = "SELECT id FROM payment WHERE payer = 'alice' AND id < 6 ORDER BY id"
    assert story.query(paid) == [(1,), (2,), (3,), (4,)]


def owned(story: Story) -> None:
    story.at(3)
    assert story.query("SELECT id FROM payment WHERE payer = 'bob'") == [(5,)]


def refused(story: Story) -> None:
    story.at(4)
    stored = "SELECT count(*) FROM semel_claim WHERE answer_status = 402 AND status = 1"
    assert story.query(stored) == [(1,)]


def killed(story: Story) -> None:
    story.at(5)
    assert [step[0] for step in story.killed] == ["5", "8"]
    assert story.query("SELECT id FROM payment WHERE id BETWEEN 6 AND 8") == [(8,)]


def done_after_the_commit(story: Story) -> None:
    """Nothing was noted for a replay, for a killed payment (13), nor later."""
    story.at(6)
    notes = (story.folder / "notes.txt").read_text("utf-8").splitlines()
    kinds = ("payment {} is committed", "receipt for payment {}")
    assert notes == [kind.format(number) for number in (9, 14) for kind in kinds]


def with_options(story: Story) -> None:
    story.at(7)
    kept = "SELECT extract(day FROM expires_at - created_at)::int, count(*) FROM semel_claim"
    assert story.query(f"{kept} GROUP BY 1 ORDER BY 1") == [(1, 7), (7, 1)]


def beyond_the_promise(story: Story) -> None:
    story.at(8)
    assert story.query("SELECT id FROM payment WHERE id > 12") == [(14,)]
    assert Options().idle_timeout == 30


def compared_closely(story: Story) -> None:
    """Any other words on the page would have been noticed."""
    for line in story.lines:
        for place, words in enumerate(line.expected):
            before, after = line.expected[:place], line.expected[place + 1 :]
            for other in ((), (f"{words}.",), (re.sub(r"\w", "_", words, count=1),)):
                assert not replace(line, expected=(*before, *other, *after)).holds, line


def nothing_to_complain_about(story: Story) -> None:
    for line in story.said.splitlines():
        assert line.startswith("INFO:  "), story.said
    assert story.said.count("Finished server process") == story.said.count("Started") - 2


PROOFS = (
    naive,
    guarded,
    owned,
    refused,
    killed,
    done_after_the_commit,
    with_options,
    beyond_the_promise,
    compared_closely,
    nothing_to_complain_about,
)


@pytest.mark.rule("A2", "O4", "R2")
def test_the_page_does_what_it_says(
    pg_database: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    with needed("bash, curl and psql"):
        if not (shutil.which("bash") and shutil.which("curl")):
            raise ServerMissingError("bash or curl is not installed")
        environment(tmp_path)
    story = Story(tmp_path, pg_database)
    story.follow(PAGE.read_text("utf-8"))
    for proof in PROOFS:
        with subtests.test(proof.__name__):
            proof(story)


def test_the_page_names_what_there_is() -> None:
    """Its addresses are of this machine, its links lead somewhere, its extras exist."""
    page = PAGE.read_text("utf-8")
    assert set(re.findall(r"(?://(?:\w+@)?|-h )([\w.]+)", page)) == {"127.0.0.1"}
    links = re.findall(r"\]\((.+?)#(.+?)\)", page)
    assert links
    for name, anchor in links:
        linked = (PAGE.parent / name).resolve(strict=True).read_text("utf-8")
        headings = re.findall(r"^#+ (.+)$", linked, re.MULTILINE)
        assert anchor in {heading.lower().replace(" ", "-") for heading in headings}
    (extras,) = re.findall(r"semel\[(.+)\]", page)
    assert set(extras.split(",")) <= set(metadata("semel").get_all("Provides-Extra") or ())
    steps = [heading[0] for heading in re.findall(r"^## (\d\. .+)$", page, re.MULTILINE)]
    assert steps == list("12345678")
