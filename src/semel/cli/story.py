"""What the demo shows, over real HTTP: each chapter is one line with its evidence.

Nothing sleeps here but where a `Retry-After` asks for it. Whatever has to be
waited for is asked for: which requests are held inside their handlers, and how
many payments are committed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import httpx

from semel.cli.subject import NotStartedError, Subject

TOKEN = "demo-1"  # noqa: S105 - the demo client's, known to everybody
PARALLEL = 5
REPLAYED = "Idempotent-Replayed"
# Nothing here takes that long; a story that gets stuck has failed.
CHAPTER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the story.

    Attributes:
        what: what is done.
        expected: what should be seen.
        seen: what was seen.
        holds: whether they agree.
    """

    what: str
    expected: str
    seen: str
    holds: bool


class Story:
    """The story, told to one running service."""

    def __init__(self, subject: Subject) -> None:
        """Begin with a service that is running."""
        self._subject = subject
        self._client = httpx.AsyncClient(
            base_url=subject.url,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=CHAPTER_SECONDS,
            trust_env=False,  # a proxy has no business on a loopback address
        )
        self._key = str(uuid.uuid4())
        self._first: httpx.Response | None = None
        self._before = 0

    async def tell(self, begin: Callable[[str], None]) -> list[Line]:
        """Tell it all.

        Args:
            begin: is told what comes next.
        """
        chapters: tuple[tuple[str, str, Callable[[], Awaitable[tuple[str, bool]]]], ...] = (
            ("five at once, one key", "[201, 409, 409, 409, 409]", self._race),
            ("the same once more", "201, same bytes, replayed", self._replay),
            ("another amount, same key", "422", self._mismatch),
            ("answer lost, sent again", "201, replayed, 1 payment", self._lost_answer),
            ("kill -9 in the middle, sent again", "201, 1 payment", self._crash),
            ("payments in total", "3", self._total),
        )
        async with self._client:
            self._before = await self._count()
            lines = []
            for what, expected, chapter in chapters:
                begin(what)
                seen, holds = await self._told(chapter)
                lines.append(Line(what, expected, seen, holds))
        return lines

    async def _told(self, chapter: Callable[[], Awaitable[tuple[str, bool]]]) -> tuple[str, bool]:
        try:
            async with asyncio.timeout(CHAPTER_SECONDS):
                return await chapter()
        except TimeoutError:
            return f"nothing for {CHAPTER_SECONDS:g} s", False
        except (httpx.HTTPError, NotStartedError, OSError) as error:
            return f"{type(error).__name__}: {error}", False

    async def _race(self) -> tuple[str, bool]:
        """Hold the first inside its handler until the other four are answered."""
        tasks = {
            asyncio.create_task(self._pay(self._key, 500, "hold=race")) for _ in range(PARALLEL)
        }
        pending = tasks
        while len(pending) > 1:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if pending:
            await self._until_held("race", pending)
            await self._client.post("/test/holds/race/release")
        answers = sorted(await asyncio.gather(*tasks), key=lambda answer: answer.status_code)
        self._first = answers[0]
        statuses = [answer.status_code for answer in answers]
        return str(statuses), statuses == [201, 409, 409, 409, 409]

    async def _replay(self) -> tuple[str, bool]:
        again = await self._pay(self._key, 500)
        same = self._first is not None and again.content == self._first.content
        holds = again.status_code == HTTPStatus.CREATED and same and _is_replay(again)
        return f"{_shown(again)}{', same bytes' if same else ', other bytes'}", holds

    async def _mismatch(self) -> tuple[str, bool]:
        other = await self._pay(self._key, 600)
        return _shown(other), other.status_code == HTTPStatus.UNPROCESSABLE_ENTITY

    async def _lost_answer(self) -> tuple[str, bool]:
        """Send, see it committed, and leave without reading a byte of the answer."""
        key, before = str(uuid.uuid4()), await self._count()
        url = urlsplit(self._subject.url)
        with socket.create_connection((url.hostname, url.port)) as connection:
            connection.sendall(self._raw_request(key, 700))
            while await self._count() == before:
                pass
        again = await self._pay(key, 700)
        made = await self._count() - before
        holds = again.status_code == HTTPStatus.CREATED and _is_replay(again) and made == 1
        return f"{_shown(again)}, {_payments(made)}", holds

    async def _crash(self) -> tuple[str, bool]:
        """Kill the service between the effect and its commit, start it, and try again."""
        key, before = str(uuid.uuid4()), await self._count()
        request = asyncio.create_task(self._pay(key, 800, "hold=crash"))
        await self._until_held("crash", {request})
        await self._subject.kill()
        with suppress(httpx.HTTPError):
            await request
        await self._subject.start()
        again, waited = await self._pay(key, 800), 0
        while again.status_code == HTTPStatus.CONFLICT:
            waited += 1
            await asyncio.sleep(float(again.headers["Retry-After"]))
            again = await self._pay(key, 800)
        made = await self._count() - before
        holds = again.status_code == HTTPStatus.CREATED and made == 1
        first = f"409 ({waited}), then " if waited else ""
        return f"{first}{_shown(again)}, {_payments(made)}", holds

    async def _total(self) -> tuple[str, bool]:
        made = await self._count() - self._before
        return str(made), made == 3  # noqa: PLR2004 - the three keys of this story

    async def _pay(self, key: str, amount: int, fault: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": f'"{key}"'}
        if fault:
            headers["X-Semel-Test"] = fault
        return await self._client.post("/payments", json=_order(amount), headers=headers)

    def _raw_request(self, key: str, amount: int) -> bytes:
        body = json.dumps(_order(amount))
        lines = (
            "POST /payments HTTP/1.1",
            f"Host: {urlsplit(self._subject.url).netloc}",
            f"Authorization: Bearer {TOKEN}",
            f'Idempotency-Key: "{key}"',
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "",
            body,
        )
        return "\r\n".join(lines).encode()

    async def _count(self) -> int:
        answer = await self._client.get("/payments", params={"count": "true"})
        return int(answer.raise_for_status().json()["count"])

    async def _until_held(self, name: str, requests: set[asyncio.Task[httpx.Response]]) -> None:
        """Wait until a request is inside its handler, unless all have been answered."""
        while not all(request.done() for request in requests):
            answer = await self._client.get("/test/holds")
            if name in [held["name"] for held in answer.raise_for_status().json()["holds"]]:
                return


def _order(amount: int) -> dict[str, object]:
    return {"amount": amount, "currency": "RUB"}


def _is_replay(answer: httpx.Response) -> bool:
    return bool(answer.headers.get(REPLAYED) == "true")


def _shown(answer: httpx.Response) -> str:
    return f"{answer.status_code}{', replayed' if _is_replay(answer) else ''}"


def _payments(count: int) -> str:
    return f"{count} payment{'' if count == 1 else 's'}"
