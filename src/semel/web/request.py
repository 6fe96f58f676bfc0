"""What the application's own functions see of a request.

`scope`, `authorize`, `when` and a function that finds the key are given a
`Request`: to look at, not to change. It is the same whatever framework serves
the application, and whether or not the body is there yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.headers import values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from semel.core.model import HeaderPairs
    from semel.web.asgi_types import AsgiScope
    from semel.web.body import RequestBody


def route_of(scope: AsgiScope) -> str:
    """Return the method, and the template of the path once a router has matched it.

    Routers of Starlette's family leave their route in the scope, and FastAPI beside
    it the path with the prefixes that the route was included under. Before that, or
    without such a router, it is the concrete path.
    """
    method: str = scope["method"]
    included = (scope.get("fastapi") or {}).get("effective_route_context")
    for found in (included, scope.get("route")):
        template = getattr(found, "path_format", None)
        if isinstance(template, str) and template:
            return f"{method.upper()} {scope.get('root_path', '')}{template}"
    return f"{method.upper()} {scope['path']}"


def plain(headers: Iterable[Sequence[bytes]]) -> HeaderPairs:
    """Return header pairs as tuples of bytes, whatever a server or framework made them of."""
    return tuple([(bytes(name), bytes(value)) for name, value in headers])


class Headers:
    """A request's headers; names are compared without case.

    Attributes:
        raw: the pairs as they came, in their order.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: HeaderPairs) -> None:
        """Look at raw pairs."""
        self.raw = raw

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a header's value, or `default` where it is missing.

        Several lines come joined, by commas as RFC 9110, section 5.3 has it and
        Cookie by semicolons (RFC 9113, section 8.2.3): a second Authorization
        line makes a value that no credential is equal to, instead of hiding.
        """
        values = self.get_all(name)
        if not values:
            return default
        return ("; " if name.lower() == "cookie" else ", ").join(values)

    def get_all(self, name: str) -> list[str]:
        """Return the values of all lines of a header, in order."""
        wanted = name.lower().encode("latin-1", "replace")
        return [value.decode("latin-1") for value in values_of(self.raw, wanted)]

    def __getitem__(self, name: str) -> str:
        """Return a header's value; see `get`.

        Raises:
            KeyError: it is missing.
        """
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        """Say whether a header is there."""
        return isinstance(name, str) and bool(self.get_all(name))

    def __iter__(self) -> Iterator[str]:
        """Go through the names, each once, in lower case."""
        return iter(dict.fromkeys(name.lower().decode("latin-1") for name, _ in self.raw))

    def __len__(self) -> int:
        """Count the names."""
        return sum(1 for _ in self)


class Request:
    """A request before it is decided whether it runs.

    Attributes:
        headers: its headers.
    """

    __slots__ = ("_body", "_scope", "headers")

    def __init__(self, scope: AsgiScope, body: RequestBody) -> None:
        """Look at an ASGI scope of type `http`, and at the body still to be read."""
        self._scope = scope
        self._body = body
        self.headers = Headers(plain(scope["headers"]))

    @property
    def method(self) -> str:
        """The method, in capitals."""
        method: str = self._scope["method"]
        return method.upper()

    @property
    def path(self) -> str:
        """The concrete path, percent-decoded, with the prefix it is mounted under."""
        path: str = self._scope["path"]
        return path

    @property
    def query(self) -> bytes:
        """What stands behind the question mark, undecoded."""
        query: bytes = self._scope.get("query_string", b"")
        return query

    @property
    def scope(self) -> Mapping[str, Any]:
        """The ASGI scope: what outer middleware found out (`user`, `session`, `client`)."""
        return self._scope

    @property
    def route(self) -> str:
        """Method and path, as they stand in events and logs; see `route_of`."""
        return route_of(self._scope)

    async def body(self) -> bytes:
        """Return the whole body; a webhook's signature covers it, and a GraphQL query is in it.

        Only an `async` function can wait for it. Once somebody has read it, an
        exempted request reaches the application from memory instead of from the
        server.

        Raises:
            BodyTooLargeError: it exceeds `max_request_bytes`: answered with 413.
            ClientGoneError: the client left: nobody is answered.
        """
        return await self._body.read()
