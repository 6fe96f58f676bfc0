"""Work that is finished although the one who waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from semel.shielding import put_off, shielded

Way = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]
pytestmark = pytest.mark.rule("O5")


@pytest.fixture(params=[shielded, put_off])
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


class Work:
    """Waits at a gate, for a turn of the loop, and at the gate again."""

    def __init__(self, error: Exception | None = None) -> None:
        self.steps: list[str] = []
        self.gate = asyncio.Event()
        self._error = error

    async def run(self) -> str:
        self.steps.append("begun")
        await self.gate.wait()
        self.steps.append("passed")
        await asyncio.sleep(0)
        await asyncio.shield(asyncio.ensure_future(asyncio.sleep(0)))
        self.steps.append("done")
        if self._error is not None:
            raise self._error
        return "result"


async def waiting(way: Way, work: Work) -> asyncio.Task[Any]:
    async def wait() -> object:
        return await way(work.run())

    task = asyncio.create_task(wait())
    while not work.steps:
        await asyncio.sleep(0)
    return task


async def test_it_gives_the_result(way: Way) -> None:
    work = Work()
    task = await waiting(way, work)
    work.gate.set()
    assert await task == "result"
    assert task.cancelling() == 0


async def test_it_raises_the_error(way: Way) -> None:
    work = Work(KeyError())
    task = await waiting(way, work)
    work.gate.set()
    with pytest.raises(KeyError):
        await task


@pytest.mark.parametrize("error", [None, KeyError()])
async def test_it_is_finished_however_often_it_is_cancelled(
    way: Way, error: Exception | None
) -> None:
    """And says with the cancellation what became of the work."""
    work = Work(error)
    task = await waiting(way, work)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert work.steps == ["begun"]
    work.gate.set()
    while not task.done():
        task.cancel()  # as a cancel scope does, at every turn
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.steps == ["begun", "passed", "done"]


async def test_the_cause_is_what_the_work_raised(way: Way) -> None:
    work = Work(KeyError())
    seen: list[BaseException | None] = []

    async def wait() -> None:
        try:
            await way(work.run())
        except asyncio.CancelledError as cancelled:
            seen.append(cancelled.__cause__)
            raise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    work.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [type(one) for one in seen] == [KeyError]


async def test_what_the_work_waits_for_may_be_cancelled_by_others(way: Way) -> None:
    """The work hears of it, and the one who waits was not cancelled."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await future
        except asyncio.CancelledError:
            return "heard"
        return "never"

    async def wait() -> object:
        return await way(work())

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    future.cancel()
    assert await task == "heard"
    assert task.cancelling() == 0


async def test_what_the_work_waits_for_may_fail(way: Way) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await future
        except OSError:
            return "heard"
        return "never"

    async def wait() -> object:
        return await way(work())

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    future.set_exception(OSError())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_put_off_starts_no_task() -> None:
    async def work() -> object:
        await asyncio.sleep(0)
        return asyncio.current_task()

    assert await put_off(work()) is asyncio.current_task()
