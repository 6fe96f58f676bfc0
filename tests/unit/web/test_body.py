"""A request's body: counted, kept, handed on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.errors import BodyTooLargeError
from semel.web.body import SPOOL_BYTES, ClientGoneError, RequestBody, declared_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.web.asgi_types import Message, Receive

LIMIT = 1 << 20


class Server:
    """Hands out a body in pieces; then the client leaves, when told to."""

    def __init__(self, pieces: Sequence[bytes], *, leaves_after: int | None = None) -> None:
        self.pieces = pieces
        self.taken = 0
        self.leaves_after = leaves_after
        self.asked_again = 0

    async def receive(self) -> Message:
        if self.taken == self.leaves_after:
            return {"type": "http.disconnect"}
        if self.taken == len(self.pieces):
            self.asked_again += 1
            return {"type": "http.disconnect"}
        self.taken += 1
        more = self.taken < len(self.pieces)
        return {"type": "http.request", "body": self.pieces[self.taken - 1], "more_body": more}


async def handed_on(receive: Receive) -> list[bytes]:
    pieces = []
    while True:
        message = await receive()
        assert message["type"] == "http.request"
        pieces.append(message["body"])
        if not message["more_body"]:
            return pieces


@pytest.mark.rule("F7", "W1")
@given(st.lists(st.integers(0, 50_000), min_size=1, max_size=6))
def test_what_was_sent_is_handed_on(sizes: list[int]) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]

    async def scenario() -> None:
        server = Server(pieces)
        with RequestBody(server.receive, LIMIT) as body:
            assert not body.was_read
            for _ in range(2):
                assert await body.read() == b"".join(pieces)
            assert body.was_read
            got = await handed_on(body.receive)
            assert b"".join(got) == b"".join(pieces)
            assert max(map(len, got)) <= SPOOL_BYTES
            assert server.asked_again == 0
            assert await body.receive() == {"type": "http.disconnect"}
            assert server.asked_again == 1, "the server's own word, not an invented one"

    asyncio.run(scenario())


@pytest.mark.rule("F7")
@pytest.mark.parametrize("size", [SPOOL_BYTES, SPOOL_BYTES + 1])
async def test_a_large_body_is_spooled_and_its_file_goes(size: int) -> None:
    body = RequestBody(Server([b"x" * size]).receive, LIMIT)
    with body:
        await body.read()
        file = body._file
        assert (file is not None) == (size > SPOOL_BYTES)
    assert file is None or file.closed
    assert body._file is None


@pytest.mark.rule("W1")
async def test_unread_it_is_the_servers_own_receive() -> None:
    server = Server([b"1", b"2"])
    body = RequestBody(server.receive, LIMIT)
    assert await body.receive() == {"type": "http.request", "body": b"1", "more_body": True}


@pytest.mark.rule("F7")
async def test_the_limit_is_kept_to_the_byte() -> None:
    assert await RequestBody(Server([b"x" * 10]).receive, 10).read() == b"x" * 10
    server = Server([b"x" * 6, b"x" * 5, b"x"])
    body = RequestBody(server.receive, 10)
    for _ in range(2):
        with pytest.raises(BodyTooLargeError, match="10 bytes"):
            await body.read()
    assert server.taken == 2


@pytest.mark.rule("F7")
async def test_what_says_that_it_is_too_large_is_not_read() -> None:
    server = Server([b"x"])
    with pytest.raises(BodyTooLargeError):
        await RequestBody(server.receive, 10, ((b"Content-Length", b"11"),)).read()
    assert server.taken == 0


@pytest.mark.rule("O5")
@pytest.mark.parametrize("after", [0, 1])
async def test_a_client_that_leaves_stays_away(after: int) -> None:
    server = Server([b"1", b"2"], leaves_after=after)
    body = RequestBody(server.receive, LIMIT)
    for _ in range(2):
        with pytest.raises(ClientGoneError):
            await body.read()
    assert await body.receive() == {"type": "http.disconnect"}


@pytest.mark.rule("F7")
@pytest.mark.parametrize(
    ("lines", "length"),
    [
        ([], None),
        ([b"12"], 12),
        ([b" 12 "], 12),
        ([b"0012"], 12),
        ([b"0"], 0),
        ([b"12", b"12"], 12),
        ([b"12", b"13"], None),
        ([b"-1"], None),
        ([b"+1"], None),
        ([b"1_0"], None),
        ([b""], None),
        ([b"\xb2"], None),
        ([b"9" * 5000], 10**18),
    ],
)
def test_what_content_length_says(lines: list[bytes], length: int | None) -> None:
    assert declared_length(tuple((b"content-length", line) for line in lines)) == length
