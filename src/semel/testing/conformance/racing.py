"""Races for one key after another, run by tasks, threads or processes alike."""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from typing import Any, Protocol

from semel.core.model import Decision, Execute, Mode
from semel.store.protocol import AsyncStore
from semel.testing.conformance.harness import Harness
from semel.testing.driving import Attempt, is_refusal, new_claim

# Nothing here takes long; a racer that does has failed.
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Finish:
    """How one racer fared at one key.

    Attributes:
        key: the key.
        ran: whether it ran the handler.
        refused: whether it got an answer that a loser may get.
    """

    key: str
    ran: bool
    refused: bool


class Barrier(Protocol):
    """Where racers wait for each other; of threads or of processes."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all are here."""

    def abort(self) -> None:
        """Make all who wait fail: one has failed already."""


async def race(
    store: AsyncStore[Any],
    harness: Harness[Any],
    mode: Mode,
    keys: Sequence[str],
    wait: Callable[[], Awaitable[object]],
) -> list[Finish]:
    """Try to pay once for each key, starting each time when all racers are ready.

    Args:
        store: the racer's store.
        harness: writes the effects.
        mode: the mode of the claims.
        keys: the same for all racers.
        wait: waits for the other racers.
    """
    finishes = []
    for key in keys:
        attempt = Attempt(store, new_claim(key, mode=mode, tables=store.tables))
        await wait()
        decision = await attempt.acquire_patiently()
        if isinstance(decision, Execute):
            await _pay(attempt, harness, key)
        finishes.append(Finish(key, isinstance(decision, Execute), is_refusal(decision)))
    return finishes


async def _pay(attempt: Attempt[Any], harness: Harness[Any], key: str) -> None:
    try:
        await harness.write_effect(await attempt.begin(), key)
        await attempt.settle()
    finally:
        await attempt.close()


def judge(finishes: Sequence[Finish], keys: Sequence[str], racers: int) -> None:
    """Make sure that each key was run once, and that every other racer was told so."""
    assert len(finishes) == len(keys) * racers
    runs = Counter(finish.key for finish in finishes if finish.ran)
    assert runs == dict.fromkeys(keys, 1)
    assert all(finish.ran or finish.refused for finish in finishes)


async def by_tasks(
    store: AsyncStore[Any], harness: Harness[Any], mode: Mode, keys: Sequence[str], racers: int
) -> list[Finish]:
    """Race in one event loop, over one store."""
    barrier = asyncio.Barrier(racers)
    all_finishes = await asyncio.gather(
        *(race(store, harness, mode, keys, barrier.wait) for _ in range(racers))
    )
    return [finish for finishes in all_finishes for finish in finishes]


def by_threads(harness: Harness[Any], mode: Mode, keys: Sequence[str], racers: int) -> list[Finish]:
    """Race in threads, each with an event loop and a store of its own."""
    barrier = threading.Barrier(racers)
    with ThreadPoolExecutor(racers) as pool:
        running = [pool.submit(_racer, harness, mode, keys, barrier) for _ in range(racers)]
        return [finish for racer in running for finish in racer.result(PATIENCE)]


def by_processes(
    harness: Harness[Any], mode: Mode, keys: Sequence[str], racers: int
) -> list[Finish]:
    """Race in processes that share nothing but the store."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(racers)
    results = in_processes(context, racers, _racer, harness, mode, keys, barrier)
    return [finish for finishes in results for finish in finishes]


def _racer(
    harness: Harness[Any], mode: Mode, keys: Sequence[str], barrier: Barrier
) -> list[Finish]:
    async def wait() -> None:
        barrier.wait(PATIENCE)  # nothing else runs in this loop

    async def run() -> list[Finish]:
        store = harness.store()
        try:
            return await race(store, harness, mode, keys, wait)
        except BaseException:
            barrier.abort()
            raise
        finally:
            await store.aclose()

    return asyncio.run(run())


def in_processes(
    context: SpawnContext, count: int, work: Callable[..., Any], *arguments: object
) -> list[Any]:
    """Run a function in several new processes at once.

    Args:
        context: how processes are started.
        count: how many.
        work: a module's function; what it raises fails the test.
        arguments: the same for each.

    Returns:
        What the function returned in each process.
    """
    results = context.Queue()
    processes = [
        context.Process(target=_report, args=(results, work, arguments)) for _ in range(count)
    ]
    for process in processes:
        process.start()
    try:
        return [_unpacked(results.get(timeout=PATIENCE)) for _ in processes]
    except queue.Empty:
        raise AssertionError("a process did not come to an end") from None
    finally:
        for process in processes:
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()
        results.close()


def _report(
    results: multiprocessing.Queue[tuple[str, Any]],
    work: Callable[..., Any],
    arguments: Sequence[Any],
) -> None:
    try:
        results.put(("returned", work(*arguments)))
    except BaseException as error:  # noqa: BLE001 - the test raises it
        results.put(("raised", f"{type(error).__name__}: {error}"))


def _unpacked(result: tuple[str, Any]) -> Any:  # noqa: ANN401 - whatever the work returns
    word, value = result
    assert word == "returned", f"a process failed: {value}"
    return value


async def ask_together(attempts: Sequence[Attempt[Any]]) -> list[Decision]:
    """Let all attempts acquire at once; those that lost are closed."""
    barrier = asyncio.Barrier(len(attempts))

    async def acquire(attempt: Attempt[Any]) -> Decision:
        await barrier.wait()
        return await attempt.acquire_patiently()

    return await asyncio.gather(*(acquire(attempt) for attempt in attempts))
