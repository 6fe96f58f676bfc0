"""The recipe of a fingerprint, which a claim keeps beside the digest (rule F1).

A deployment may change what the fingerprint ignores, or rotate its secret. A
retry is still compared in the way in which the first request was written down,
so a recipe is read back exactly, or refused.

As text it is the version of the algorithm and then what differs from a plain
one: `1`, or `1 s=9f86d081 h=x-version i=/client_time`, percent-encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote, unquote

from semel.core.headers import header_name
from semel.core.jsonvalue import parse_pointer
from semel.errors import RecipeUnknownError, UsageError

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a fingerprint is made; requests are compared under equal recipes only.

    Attributes:
        ignore: JSON Pointers of what is removed from the body first.
        headers: names of headers that are included, in lower case.
        function: a custom function as `name@version`, or `None`.
        secret: the id of the secret of the HMAC, or `None` for plain SHA-256.
    """

    ignore: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    function: str | None = None
    secret: str | None = None

    def __post_init__(self) -> None:
        """Check the fields and bring them into one order.

        Raises:
            UsageError: a pointer or header name is malformed, a pointer names
                the whole body, or fields are combined with a function, which
                would know nothing of them.
        """
        if self.function and (self.ignore or self.headers):
            raise UsageError("a fingerprint is made of fields or by a function, not both")
        if "" in self.ignore:
            raise UsageError("the JSON Pointer '' names the whole body: all would be equal")
        for pointer in self.ignore:
            parse_pointer(pointer)
        names = {header_name(name).decode("ascii") for name in self.headers}
        object.__setattr__(self, "ignore", tuple(sorted(set(self.ignore))))
        object.__setattr__(self, "headers", tuple(sorted(names)))

    def encode(self) -> str:
        """Return the text that is stored with a claim."""
        fields = [
            ("s", self.secret),
            ("f", self.function),
            *(("h", name) for name in self.headers),
            *(("i", pointer) for pointer in self.ignore),
        ]
        given = [f"{tag}={quote(value, safe='/~@')}" for tag, value in fields if value]
        return " ".join([str(VERSION), *given])

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read a stored recipe.

        Raises:
            RecipeUnknownError: it is of another version, or nothing that
                `encode` ever returned.
        """
        found: dict[str, list[str]] = {"s": [], "f": [], "h": [], "i": []}
        try:
            for field in text.split(" ")[1:]:
                tag, _, value = field.partition("=")
                found[tag].append(unquote(value, errors="strict"))
            recipe = cls(
                ignore=tuple(found["i"]),
                headers=tuple(found["h"]),
                function="".join(found["f"]) or None,
                secret="".join(found["s"]) or None,
            )
        except (KeyError, ValueError):
            recipe = None
        if recipe is None or recipe.encode() != text:
            raise RecipeUnknownError(
                f"a stored fingerprint has the recipe {text!r}, which this version can not follow"
            )
        return recipe
