"""Group: what is stored comes back byte for byte (rules R1, K4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from semel.core.model import Answer, HeaderPairs, Identity, Mode, NotStored, Replay
from semel.testing.conformance.group import Bench, Group
from semel.testing.driving import Request, digest

ALL_BYTES = bytes(range(256))
# CR, LF and NUL can not be part of a header.
HEADER_BYTES = bytes(byte for byte in range(256) if byte not in b"\r\n\0")

BODIES = {
    "empty": b"",
    "one NUL": b"\0",
    "NULs": b"\0a\0\0b\0",
    "all bytes": ALL_BYTES,
    "no UTF-8": b"\xff\xfe\xed\xa0\x80",
    "quotes": b"'\"\\%s%%:now$1?{}\r\n",
    "1 MiB": ALL_BYTES * 4096,
}
HEADERS: dict[str, HeaderPairs] = {
    "none": (),
    "twice, in order": ((b"Link", b"<a>"), (b"link", b"<b>"), (b"LINK", b"<a>")),
    "without a value": ((b"x-empty", b""),),
    "all bytes": ((b"x-bytes", HEADER_BYTES),),
    "quotes": ((b"x-quotes", b"'\"\\%s:now$1"),),
    "many": tuple((f"x-{n}".encode(), b"v" * 100) for n in range(200)),
}
DIGESTS = {
    "zeros": bytes(32),
    "ones": b"\xff" * 32,
    "quotes": b"'\"\\\0%:$?" * 4,
}


class Fidelity(Group):
    """Answers, digests and texts survive storage unchanged."""

    @pytest.mark.rule("R1")
    @pytest.mark.parametrize("name", BODIES)
    async def test_a_body_comes_back(self, bench: Bench, mode: Mode, name: str) -> None:
        """Bytes are bytes, whatever they look like."""
        answer = Answer(200, (), BODIES[name])
        await bench.completed(bench.claim(mode=mode), answer)
        assert await bench.ask(bench.claim(mode=mode)) == Replay(answer)
        (row,) = await bench.dump()
        assert row.listed.answer_bytes == len(BODIES[name])

    @pytest.mark.rule("R1")
    @pytest.mark.parametrize("name", HEADERS)
    async def test_headers_come_back(self, bench: Bench, mode: Mode, name: str) -> None:
        """Raw pairs, in their order, with their case and their repetitions."""
        answer = Answer(200, HEADERS[name], b"body")
        await bench.completed(bench.claim(mode=mode), answer)
        assert await bench.ask(bench.claim(mode=mode)) == Replay(answer)

    @pytest.mark.rule("R1")
    async def test_every_status_comes_back(self, bench: Bench, mode: Mode) -> None:
        """The smallest and the largest one too."""
        for status in (100, 200, 204, 303, 422, 599):
            answer = Answer(status, (), b"")
            await bench.completed(bench.claim(f"{status}", mode=mode), answer)
            assert await bench.ask(bench.claim(f"{status}", mode=mode)) == Replay(answer)

    @pytest.mark.rule("O7")
    async def test_no_body_is_not_an_empty_body(self, bench: Bench, mode: Mode) -> None:
        """An answer that was not kept can not be replayed, and does not run again."""
        headers = ((b"content-type", b"text/event-stream"),)
        await bench.completed(bench.claim(mode=mode), Answer(200, headers, None))
        assert await bench.ask(bench.claim(mode=mode)) == NotStored(200)
        (row,) = await bench.dump()
        assert row.listed.answer_bytes is None
        assert row.found.answer == Answer(200, headers, None)

    @pytest.mark.rule("K4")
    @pytest.mark.parametrize("name", DIGESTS)
    async def test_digests_are_compared_as_bytes(self, bench: Bench, mode: Mode, name: str) -> None:
        """Scope, key, fingerprint and owner may hold any byte."""
        value = DIGESTS[name]
        new = replace(
            bench.claim(mode=mode, owner=value[:16]),
            identity=Identity(scope=value, key=value),
            request=Request(digest=value, raw=value),
        )
        neighbour = replace(new, identity=Identity(scope=value, key=digest("other")))
        await bench.completed(new)
        await bench.completed(neighbour)

        found = await bench.found(new.identity)
        assert (found.digest, found.raw, found.owner) == (value, value, value[:16])
        assert await bench.look(Identity(scope=digest("other"), key=value)) is None

    @pytest.mark.rule("F1")
    @pytest.mark.parametrize("recipe", ["", "1", "sha256;/a'\"\\%s:now$1?", "ключ \U0001f511"])
    async def test_a_recipe_comes_back(self, bench: Bench, mode: Mode, recipe: str) -> None:
        """A retry is compared by the recipe that was stored."""
        new = bench.claim(mode=mode)
        request = Request(digest=new.request.digest, raw=new.request.raw, recipe=recipe)
        await bench.completed(replace(new, request=request))
        assert (await bench.found(new.identity)).recipe == recipe
