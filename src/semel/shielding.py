"""Finish work although the task that waits for it is cancelled (rule O5).

`shielded` gives the work a task of its own, for whatever it may do. `put_off` does it in
the task at hand, which costs much less, where the work waits for nothing but futures: a
time-out inside it (`asyncio.timeout`) would cancel the very task whose cancellation is
put off.

Both hand `asyncio.Task` something to wait for that can not be cancelled. A task that is
cancelled meanwhile is told when that is done, which is what Future-compatible objects may
ask of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Steadfast:
    """A future, or a task, as others wait for it without being able to cancel it."""

    __slots__ = ("_asyncio_future_blocking", "_future")

    def __init__(self, future: Any) -> None:  # noqa: ANN401 - whatever is like a future
        self._future = future
        self._asyncio_future_blocking = True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = self._future.get_loop()
        return loop

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        self._future.add_done_callback(callback, context=context)

    def cancelled(self) -> bool:
        return bool(self._future.cancelled())

    def cancel(self, msg: object = None) -> bool:
        del msg
        return False


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Finish some work although this task is cancelled; then be cancelled.

    Raises:
        asyncio.CancelledError: this task was cancelled meanwhile; its cause is what
            the work raised, `None` where it succeeded.
    """
    task = asyncio.create_task(work)
    try:
        await _until_done(task)
    except asyncio.CancelledError as cancelled:
        if task.cancelled():
            raise
        raise cancelled from task.exception()
    except Exception:  # noqa: BLE001, S110 - raised below by task.result()
        pass
    return task.result()


@coroutine
def _until_done(task: asyncio.Task[Any]) -> Generator[Any, None, None]:
    if not task.done():
        yield _Steadfast(task)


@coroutine
def put_off(work: Coroutine[Any, Any, T]) -> Generator[Any, None, T]:
    """Do some work in this task, and be cancelled only when it is done.

    Args:
        work: waits for futures, and for nothing that cancels this task.

    Raises:
        asyncio.CancelledError: see `shielded`.
    """
    cancelled: asyncio.CancelledError | None = None
    step: Callable[[Any], Any] = work.send
    value: object = None
    while True:
        try:
            future = step(value)
        except StopIteration as stop:
            if cancelled is not None:
                raise cancelled from None
            result: T = stop.value
            return result
        except BaseException as error:
            if cancelled is not None:
                raise cancelled from error
            raise
        step, value = work.send, None
        try:
            if future is None:  # a turn of the loop
                yield
            else:
                future._asyncio_future_blocking = False  # noqa: SLF001 - as a task does
                yield _Steadfast(future)
        except asyncio.CancelledError as error:
            if future is not None and future.cancelled():
                step, value = work.throw, error  # it was cancelled by somebody else
            else:
                cancelled = error
        except BaseException as error:  # noqa: BLE001 - the work's own business
            step, value = work.throw, error
