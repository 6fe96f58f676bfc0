"""The README's example runs as it stands, and both languages show the same one."""

from __future__ import annotations

import re
import types
from pathlib import Path

import httpx
import psycopg
import pytest

ROOT = Path(__file__).parents[2]


def example(name: str) -> str:
    text = (ROOT / name).read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return str(code)


@pytest.mark.rule("A2", "W1")
async def test_the_example_pays_once_and_replays(pg_database: str) -> None:
    async with await psycopg.AsyncConnection.connect(pg_database, autocommit=True) as admin:
        await admin.execute("CREATE TABLE payment (amount bigint)")
    code = example("README.md").replace("postgresql://postgres@127.0.0.1/shop", pg_database)
    module = types.ModuleType("example")
    exec(compile(code, "README.md", "exec"), module.__dict__)  # noqa: S102 - it is ours
    async with module.guard:
        await module.guard.store.migrate()
        transport = httpx.ASGITransport(module.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            headers = {"Authorization": "Bearer demo-1", "Idempotency-Key": "order-1"}
            first = await client.post("/payments", json={"amount": 500}, headers=headers)
            again = await client.post("/payments", json={"amount": 500}, headers=headers)
            other = await client.post("/payments", json={"amount": 501}, headers=headers)
    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert again.content == first.content
    assert again.headers["Idempotent-Replayed"] == "true"
    async with await psycopg.AsyncConnection.connect(pg_database) as reader:
        assert await (await reader.execute("SELECT amount FROM payment")).fetchall() == [(500,)]


def test_both_languages_have_the_same_shape() -> None:
    def shape(name: str) -> list[int]:
        text = (ROOT / name).read_text("utf-8")
        return [
            len(re.findall(pattern, text, re.MULTILINE))
            for pattern in (r"^## ", r"^\|", r"^```", r"^\$ ", r"\]\(")
        ]

    def code(name: str) -> str:
        return re.sub(r"#.*", "", example(name))

    assert shape("README.md") == shape("README.ru.md")
    assert code("README.md") == code("README.ru.md")
