"""Put the claim between the dependencies and the endpoint.

FastAPI calls an endpoint when every dependency is solved and the request is valid:
that is the moment to claim. So the endpoint that it gets to see is a function of
Semel's, with the signature of the application's own and one dependency more.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool

from semel.guard import restore
from semel.routing import name_of

if TYPE_CHECKING:
    from fastapi.params import Depends

    from semel.fastapi.turn import Turn

PARAMETER: Final = "semel_turn"
_OWN: Final = "__semel_endpoint__"

Endpoint = Callable[..., Any]


def original(endpoint: Endpoint) -> Endpoint:
    """Return the application's own endpoint.

    A router that includes another one may make a route again of what it finds there.
    """
    found: Endpoint = getattr(endpoint, _OWN, endpoint)
    return found


def is_stream(endpoint: Endpoint) -> bool:
    """Say whether an endpoint yields its answer piece by piece."""
    return _is(endpoint, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


def guarded(endpoint: Endpoint, depends: Depends, plan: object) -> Endpoint:
    """Return what FastAPI calls in place of an endpoint.

    Args:
        endpoint: the application's own: async or not, a generator or not.
        depends: the dependency that gives the request's `Turn`.
        plan: identifies the route.
    """
    wrapper = _streaming(endpoint, plan) if is_stream(endpoint) else _calling(endpoint, plan)
    functools.update_wrapper(wrapper, endpoint)
    wrapper.__name__ = getattr(endpoint, "__name__", type(endpoint).__name__)
    wrapper.__qualname__ = name_of(endpoint)
    wrapper.__signature__ = _signature(endpoint, depends)  # type: ignore[attr-defined] # PEP 362
    setattr(wrapper, _OWN, endpoint)
    return wrapper


def _calling(endpoint: Endpoint, plan: object) -> Endpoint:
    blocking = not _is(endpoint, inspect.iscoroutinefunction)

    async def call(**values: Any) -> Any:  # noqa: ANN401 - the endpoint's own
        turn: Turn | None = values.pop(PARAMETER)
        if turn is not None and turn.plan is plan:
            answer = await turn.begin()
            if answer is not None:
                return answer
        if blocking:
            return await run_in_threadpool(endpoint, **values)
        return await endpoint(**values)

    return call


def _streaming(endpoint: Endpoint, plan: object) -> Endpoint:
    """Wrap a generator, which FastAPI may run before its answer is begun."""
    asynchronous = _is(endpoint, inspect.isasyncgenfunction)

    async def stream(**values: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - the endpoint's own
        turn: Turn | None = values.pop(PARAMETER)
        pieces = endpoint(**values)
        if not asynchronous:
            pieces = iterate_in_threadpool(pieces)
        if turn is not None and turn.plan is plan:
            pieces = _in_turn(turn, pieces)
        async for piece in pieces:
            yield piece

    return stream


async def _in_turn(turn: Turn, pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yield what the endpoint yields, once its route has claimed the key.

    A stream of events is settled when it begins, and runs in a task of its own: what
    it does up to its first piece belongs to the claim, and what it does after that
    waits until the claim is settled. What it raises before that is raised by the
    route, whose answer must not be begun meanwhile.
    """
    await turn.admitted.wait()
    restore(turn.exchange.claim)  # the task that claimed may be another one
    try:
        async for piece in pieces:
            yield piece
            turn.started.set()
            if turn.is_settled_early:
                await turn.exchange.settled.wait()
    except Exception as error:
        if turn.started.is_set() or not turn.is_settled_early:
            raise
        turn.failure = error
    turn.started.set()


def _signature(endpoint: Endpoint, depends: Depends) -> inspect.Signature:
    try:
        signature = inspect.signature(endpoint, eval_str=True)
    except NameError:  # names for the type checker only, as FastAPI allows
        signature = inspect.signature(endpoint)
    parameters = list(signature.parameters.values())
    own = inspect.Parameter(PARAMETER, inspect.Parameter.KEYWORD_ONLY, default=depends)
    last = parameters[-1:] if parameters and parameters[-1].kind is own.VAR_KEYWORD else []
    return signature.replace(parameters=[*parameters[: len(parameters) - len(last)], own, *last])


def _is(endpoint: Endpoint, *kinds: Callable[[object], bool]) -> bool:
    """Look through partial functions, decorators and callable objects, as FastAPI does."""
    bare: Any = endpoint
    while isinstance(bare, functools.partial):
        bare = bare.func
    candidates = [bare, inspect.unwrap(bare)]
    candidates += [getattr(one, "__call__", None) for one in candidates]  # noqa: B004 - to look at it
    return any(kind(one) for one in candidates for kind in kinds)
